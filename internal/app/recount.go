package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
)

// balances write the opening balances of rules for the journal, and know how many rules lack them. The zero value has not looked yet.
type balances struct {
	looked  atomic.Bool
	lacking atomic.Int64
}

// tend writes the opening balances of rules that have none, or old ones. If the rules cannot be read, the number stays.
func (o *balances) tend(ctx context.Context, cfg Config, s store.Store) error {
	lacking, err := recount.New(s, recount.Config{}).Tend(ctx, cfg.Logger)
	if err == nil || lacking > 0 {
		o.lacking.Store(int64(lacking))
		o.looked.Store(true)
	}
	return err
}

// tendWithin bounds openings with a change of rules, which somebody waits for.
const tendWithin = 5 * time.Second

// tendSoon is tend within tendWithin. The next round of chores tries again.
func (o *balances) tendSoon(ctx context.Context, cfg Config, s store.Store) {
	ctx, cancel := context.WithTimeout(ctx, tendWithin)
	defer cancel()
	if err := o.tend(ctx, cfg, s); err != nil {
		cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "opening balances for recounts not written, will try again", slog.Any("err", err))
	}
}

// unbalanced is the number of rules that lack opening balances; false before the first look.
func (o *balances) unbalanced() (rules int, known bool) {
	return int(o.lacking.Load()), o.looked.Load()
}

// samples leave out a number that nobody knows: a 0 would say that all rules have balances.
func (o *balances) samples() []sample {
	rules, known := o.unbalanced()
	if !known {
		return nil
	}
	return []sample{gauge("countmill_journal_rules_without_balance", "Rules for the journal without opening balances of all their counters from the last half of KEEP, as this process found within the last hour.", float64(rules))}
}
