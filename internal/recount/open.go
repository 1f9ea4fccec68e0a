package recount

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// open notes the balance of a counter for an opening balance that this run writes: the journal's sum if the journal
// is complete, so that damage stays damage, and otherwise the stored sum.
func (x *run) open(name string, balance int128.Int) error {
	if !x.q.Open || x.rules.JournalOf(name) == nil {
		return nil
	}
	s, err := x.sum(name)
	if err != nil {
		return err
	}
	s.opened, s.delta = true, balance
	return nil
}

// mayOpen reports whether this run can write opening balances, if it is to write any. It is asked before anything is changed.
func (x *run) mayOpen() error {
	if !x.q.Open {
		return nil
	}
	if x.rules == nil {
		return &countmill.FieldError{Field: "prefix", Problem: "has no rule for the journal", Limit: "counters of a rule"}
	}
	// A record after the cut by older rules could be missing, or go earlier than the present rules say.
	if since := x.rules.JournalSince; since.After(x.cut.Key.Time()) {
		return fmt.Errorf("%w: %w: all records are by the present rules from %s, and settled until %s", countmill.ErrUnavailable, ErrEarly, since.UTC(), x.cut.Key.Time())
	}
	return nil
}

// writeOpeningBalances writes the balances of the counters of the range at the place cut.
func (x *run) writeOpeningBalances(ctx context.Context) error {
	var all []*sum
	for _, s := range x.sums {
		if s.opened && !countmill.IsGroup(s.name) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *sum) int {
		return cmp.Or(cmp.Compare(wire.Order(a.name), wire.Order(b.name)), cmp.Compare(a.name, b.name))
	})
	return x.writeRange(ctx, all, x.keyRange.From, x.keyRange.To)
}

// writeRange writes the opening balances of a range of places.
func (x *run) writeRange(ctx context.Context, all []*sum, from, last uint64) error {
	for {
		n, to := fitting(all, last)
		if err := x.writeOpeningBalance(ctx, all[:n], from, to); err != nil {
			return err
		}
		x.result.Opened += n
		if all = all[n:]; to == last {
			return nil
		}
		from = to + 1
	}
}

// fitting returns how many of the first sums fit one record, and the last place that it then covers, last at most. Names of one
// place stay together.
func fitting(all []*sum, last uint64) (n int, to uint64) {
	room := journal.MaxRecord - countmill.MaxCounterName - 64 - 2*journal.MaxPartSize("")
	for whole := 0; n < len(all); n++ {
		if n > 0 && wire.Order(all[n].name) != wire.Order(all[n-1].name) {
			whole = n
		}
		if room -= journal.MaxBalanceSize(all[n].name, all[n].balance()); room < 0 && whole > 0 {
			return whole, wire.Order(all[whole].name) - 1
		}
	}
	return n, last
}

func (x *run) writeOpeningBalance(ctx context.Context, sums []*sum, from, to uint64) error {
	o := &journal.OpeningBalance{Prefix: x.q.Prefix, From: from, To: to, Cut: x.cut, Settings: x.set.Version}
	r := &journal.Record{Kind: journal.OpeningBalanceKind, OpeningBalance: o, Parts: []journal.Part{{ID: wire.RandomID(x.cfg.env, wire.RecountClass)}}}
	for _, s := range sums {
		r.AddBalance(s.name, s.balance())
	}
	checked, err := timed(ctx, x.Recounter, x.store.Check)
	if err != nil {
		return err
	}
	now := x.now(&checked)
	at, done := x.store.JournalMoment(now)
	defer done()
	c := &store.Commit{Rules: checked.Settings.Version, Restores: checked.Settings.Restores}
	x.addRecord(c, r, at, x.keep(&checked.Settings), journal.OpeningBalanceRows, o.Encode(nil))
	// Without a marker: two opening balances of one content are as good as one.
	_, err = timed(ctx, x.Recounter, func(ctx context.Context) (store.CommitResult, error) { return x.store.Fold(ctx, c) })
	return err
}
