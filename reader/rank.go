package reader

import (
	"context"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// A Rank is the place of a counter.
type Rank struct {
	Scan
	Counter string
	Total   int64
	// Rank is 1 more than the number of counters with a larger total, so equal totals share a rank. It is 0 for a counter without a place.
	Rank int
	// Of is the number of counters that have a place.
	Of int
}

// Rank returns the place of a counter, or of a group, in the order of which Top is the beginning. Its errors are those of Top, and
// an *OverflowError if the counter's total does not fit 64 bits.
func (r *Reader) Rank(ctx context.Context, q BoardQuery, counter string) (Rank, error) {
	if err := countmill.CheckName(counter); err != nil {
		return Rank{}, err
	}
	q.Groups = countmill.IsGroup(counter)
	rules, err := r.rulesWith(ctx, &q)
	if err != nil {
		return Rank{}, err
	}
	if of := (store.SumsQuery{Index: rules.Index(q.Index), Groups: q.Groups}); !of.Has(counter) {
		limit := "a counter that matches " + of.Index.Match + ", or a group"
		if q.Groups { // the caller need not know which counters they have
			limit = "a group that matches " + countmill.GroupMark + of.Index.Group
		}
		return Rank{}, &countmill.FieldError{Field: "counter", Problem: "is not in index " + q.Index, Limit: limit}
	}
	b, scan, err := r.board(ctx, &q)
	if err != nil {
		return Rank{}, err
	}
	total, rank, overflow := b.Place(counter)
	if overflow {
		return Rank{}, &OverflowError{Counter: counter}
	}
	return Rank{Scan: scan, Counter: counter, Total: total, Rank: rank, Of: b.Counters()}, nil
}
