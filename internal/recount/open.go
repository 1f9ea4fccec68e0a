package recount

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// open notes the balance of a counter for an opening that this run writes: the journal's sum if the journal
// is complete, so that damage stays damage, and otherwise the stored sum.
func (x *run) open(name string, balance stored) error {
	if !x.q.Open || balance.overflow || x.rules.JournalOf(name) == nil {
		return nil
	}
	s, err := x.sum(name)
	if err != nil {
		return err
	}
	s.opened, s.delta = true, balance.sum
	return nil
}

// writeOpenings writes the balances of the counters of the piece at the place cut, in ranges that fit a record.
func (x *run) writeOpenings(ctx context.Context) error {
	if x.rules == nil {
		return &countmill.FieldError{Field: "prefix", Problem: "has no rule for the journal", Limit: "counters of a rule"}
	}
	// A record after the cut by older rules could be missing, or go earlier than the present rules say.
	if since := x.rules.JournalSince; since.After(x.cut.Key.Time()) {
		return fmt.Errorf("%w: %w: all records are by the present rules from %s, and settled until %s", countmill.ErrUnavailable, ErrEarly, since.UTC(), x.cut.Key.Time())
	}
	var all []*sum
	for _, s := range x.sums {
		if s.opened && !countmill.IsGroup(s.name) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *sum) int {
		return cmp.Or(cmp.Compare(wire.Order(a.name), wire.Order(b.name)), cmp.Compare(a.name, b.name))
	})
	for from := x.piece.From; ; {
		n, to := x.fitting(all)
		if err := x.writeOpening(ctx, all[:n], from, to); err != nil {
			return err
		}
		x.result.Opened += n
		if all = all[n:]; to == x.piece.To {
			return nil
		}
		from = to + 1
	}
}

// fitting returns how many of the first sums fit one record, and the last place that it then covers. Names of one place
// stay together.
func (x *run) fitting(all []*sum) (n int, to uint64) {
	room := journal.MaxRecord - countmill.MaxCounterName - 64 - journal.MaxPartSize("")
	for last := 0; n < len(all); n++ {
		if n > 0 && wire.Order(all[n].name) != wire.Order(all[n-1].name) {
			last = n
		}
		if room -= journal.MaxEntrySize(all[n].name); room < 0 && last > 0 {
			return last, wire.Order(all[last].name) - 1
		}
	}
	return n, x.piece.To
}

func (x *run) writeOpening(ctx context.Context, sums []*sum, from, to uint64) error {
	o := &journal.Opening{Prefix: x.q.Prefix, From: from, To: to, Cut: x.cut, Settings: x.set.Version}
	var id [1]wire.PartID
	wire.RandomIDs(x.cfg.env, wire.RecountClass, id[:])
	r := &journal.Record{Kind: journal.OpeningKind, Opening: o, Parts: []journal.Part{{ID: id[0]}}}
	for _, s := range sums {
		r.Parts[0].Entries = append(r.Parts[0].Entries, journal.Entry{Counter: s.name, Delta: s.delta - s.recent})
	}
	checked, err := timed(ctx, x.Recounter, x.store.Check)
	if err != nil {
		return err
	}
	now := x.now(&checked)
	at, done := x.store.JournalMoment(now)
	defer done()
	c := &store.Commit{Rules: checked.Settings.Version}
	if err := x.addRecord(c, r, at, x.keep(&checked.Settings), journal.OpeningRows, o.Encode(nil)); err != nil {
		return err
	}
	// Without a marker: two openings of one content are as good as one.
	_, err = timed(ctx, x.Recounter, func(ctx context.Context) (store.CommitResult, error) { return x.store.Fold(ctx, c) })
	if err != nil {
		return fmt.Errorf("%w: writing an opening balance: %w", countmill.ErrOutcomeUnknown, err)
	}
	return nil
}
