package reader

import (
	"context"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// A Rank is the place of a counter.
type Rank struct {
	Moments
	Counter string
	Total   int64
	// Rank is 1 more than the number of other counters that had a larger sum at CompleteAsOf. Counters with
	// equal sums share a rank. It is 0 for a counter without a sum. Where the counter itself
	// had more at CompleteAsOf than at AsOf, the rank can be one too high.
	Rank int
	// Of is the number of counters at CompleteAsOf, or Rank if that is more.
	Of int
}

// Rank returns the place of a counter, or of a group, of the index. Complete means that no sum has changed since
// CompleteAsOf. Its errors are those of Top, and an *OverflowError if the counter's total does not fit 64 bits.
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
	br, err := r.openBoard(ctx, q)
	if err != nil {
		return Rank{}, err
	}
	defer br.view.Close()
	found, err := br.sums(ctx, []string{counter})
	if err != nil {
		return Rank{}, err
	}
	if len(br.overflowed) > 0 {
		return Rank{}, &OverflowError{Counter: counter}
	}
	rank := Rank{Moments: br.moment, Counter: counter, Of: br.board.Counters()}
	if len(found) > 0 {
		rank.Total = found[0].Sum
		rank.Rank = 1 + br.board.Above(counter, rank.Total)
		rank.Of = max(rank.Of, rank.Rank)
	}
	if rank.Complete = br.rise.Known && !br.rise.Changed && !br.board.Slides; rank.Complete {
		rank.CompleteAsOf = rank.AsOf
	}
	return rank, nil
}
