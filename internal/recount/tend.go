package recount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// Tend writes opening balances for each rule for the journal that has none, or old ones: then records since the
// opening balance would be gone before the next one is there. Call it after rules were changed, and now and
// then. It may be called at the same time by several processes.
//
// lacking is the number of rules that still have none, or old ones: too many counters, a rule that does not hold yet, or an error. If
// the rules cannot be read, it is 0 with an error.
func (r *Recounter) Tend(ctx context.Context, log *slog.Logger) (lacking int, err error) {
	checked, err := timed(ctx, r, r.store.Check)
	if err != nil || checked.Settings.Rules == nil {
		return 0, err
	}
	var failed error
	for i := range checked.Settings.Rules.Journal {
		rule := &checked.Settings.Rules.Journal[i]
		if !rule.Ended.IsZero() {
			continue
		}
		err := r.tend(ctx, log, rule)
		if err == nil {
			continue
		}
		lacking++
		if !errors.Is(err, ErrEarly) && !errors.Is(err, errTooMany) {
			failed = errors.Join(failed, fmt.Errorf("opening balances of %q: %w", rule.Pattern, err))
		}
	}
	return lacking, failed
}

// tend returns nil if the rule has young opening balances, which it writes if they are missing.
func (r *Recounter) tend(ctx context.Context, log *slog.Logger, rule *store.Rule) error {
	prefix := strings.TrimSuffix(rule.Pattern, "*")
	x := &run{Recounter: r, q: &Query{Prefix: prefix}, keyRange: everything, sums: make(map[string]*sum)}
	x.view = r.store.JournalView()
	defer x.view.Close()
	if err := x.readOpeningBalances(ctx); err != nil {
		return err
	}
	if x.cover.young(prefix, rule) {
		return nil
	}
	counters, err := x.tended(ctx, prefix)
	if errors.Is(err, errTooMany) {
		log.LogAttrs(ctx, slog.LevelWarn, "no opening balances were written for a recount: run countmill verify, then recount --opening",
			slog.String("pattern", rule.Pattern), slog.Int("limit", x.cfg.MostTended))
		return err
	}
	if err != nil {
		return err
	}
	for keyRange := ""; ; {
		got, err := r.Recount(ctx, Query{Prefix: prefix, Range: keyRange, Open: true})
		if err != nil {
			return err
		}
		if keyRange = got.Next; keyRange == "" {
			log.LogAttrs(ctx, slog.LevelInfo, "opening balances written for recounts", slog.String("pattern", rule.Pattern), slog.Int("counters", counters))
			return nil
		}
	}
}

var errTooMany = errors.New("more counters than Tend writes opening balances for")

// tended counts the counters with the prefix, and answers errTooMany if there are too many. Groups do not count.
func (x *run) tended(ctx context.Context, prefix string) (counters int, err error) {
	err = x.eachRecord(ctx, prefix, func(records []store.Record) error {
		for i := range records {
			if !countmill.IsGroup(records[i].Counter) {
				counters++
			}
		}
		if counters > x.cfg.MostTended {
			return errTooMany
		}
		return nil
	})
	return counters, err
}

// young reports whether opening balances of all counters with the prefix are of the present rule, and less than half as old as
// its records become.
func (c *coverage) young(prefix string, rule *store.Rule) bool {
	var usable []*openingBalance
	for i := range c.openingBalances {
		o := &c.openingBalances[i]
		cut := o.Cut.Key.Time()
		if strings.HasPrefix(prefix, o.Prefix) && o.Settings >= rule.Version && !rule.Since.After(cut) && c.at.Before(cut.Add(rule.Keep.Entries/2)) {
			usable = append(usable, o)
		}
	}
	slices.SortFunc(usable, func(a, b *openingBalance) int { return cmp.Compare(a.From, b.From) })
	next := uint64(0)
	for _, o := range usable {
		if o.From > next && o.From-next > 1 { // a gap of one place is a counter whose balance nobody knows
			return false
		}
		if o.To >= math.MaxUint64-1 {
			return true
		}
		next = max(next, o.To+1)
	}
	return false
}
