package reader

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
)

// MaxTop is the most counters of Top.
const MaxTop = board.Size

// A BoardQuery orders the counters of an index, or its groups, by their sums in a window.
type BoardQuery struct {
	Index  string
	Groups bool
	Window Window
	// Caller is the name of the caller. A named caller may own half of all boards. Callers without a name share all of them.
	Caller string
	// MayRead reports whether the caller may read all names with a prefix. An answer depends on all counters of the index, or on
	// all groups. So an index of which the caller may read only some does not exist for it. Default: all.
	MayRead func(prefix string) bool
}

// has reports whether the index exists for the caller.
func (q *BoardQuery) has(x *store.Index) bool {
	if x == nil || !x.InForce() {
		return false
	}
	of := store.SumsQuery{Index: x, Groups: q.Groups}
	return q.MayRead == nil || q.MayRead(of.Prefix())
}

// A TopQuery asks for the best counters.
type TopQuery struct {
	BoardQuery
	// N is how many, 1 to MaxTop.
	N int
}

// A Scan describes the look at all counters from which an answer comes.
type Scan struct {
	// CompleteAsOf is the moment of the look: all totals and places are as of then.
	CompleteAsOf time.Time
	// Partial is true if the window began before the rule for its series, or if no rule keeps a series of the overflow group. Totals
	// have no window.
	Partial bool
}

// A Top is the best counters, the best first. Counters with equal totals are in the order of their
// names. From a window those with a sum of 0 are left out.
type Top struct {
	Scan
	Top []TopCounter
	// Overflowed are counters that have no place, because their total does not fit 64 bits, by name: at most 100.
	Overflowed []string
}

// A TopCounter is a counter of a Top.
type TopCounter struct {
	board.Ranked
	// Rank is its place, as Rank has it: 1 more than the number of counters with a larger total.
	Rank int
}

// A NoIndexError names an index that does not exist for the caller, or is being deleted.
type NoIndexError struct{ Index string }

func (e *NoIndexError) Error() string { return fmt.Sprintf("no index %q", e.Index) }

// Top returns the best counters of an index, as of the last look at all of them. If that is older than Config.BoardAge and a sum has changed,
// the next look begins meanwhile. A call waits for the first look. If nobody has asked for twice that age, it waits for the
// next one too, unless the last one took more than two seconds.
//
// An error matches countmill.ErrInvalid if the query is wrong, ErrNoBoards if no scans are made, and
// countmill.ErrUnavailable if the store cannot be read or the look is not done in time; or it is a
// *NoIndexError, a *NotServingError or a *NoWindowError.
func (r *Reader) Top(ctx context.Context, q TopQuery) (Top, error) {
	if q.N < 1 || q.N > MaxTop {
		return Top{}, &countmill.FieldError{Field: "n", Problem: "is out of range", Limit: "1 to " + strconv.Itoa(MaxTop)}
	}
	b, scan, err := r.board(ctx, &q.BoardQuery)
	if err != nil {
		return Top{}, err
	}
	return Top{Scan: scan, Top: placed(b.Best[:min(len(b.Best), q.N)]), Overflowed: b.Overflowed}, nil
}

// board finds the board of a query.
func (r *Reader) board(ctx context.Context, q *BoardQuery) (*board.Board, Scan, error) {
	rules, err := r.rulesWith(ctx, q)
	if err != nil {
		return nil, Scan{}, err
	}
	of, begin := store.SumsQuery{Index: rules.Index(q.Index), Groups: q.Groups}, time.Time{}
	if q.Groups {
		if err := r.checkServing(ctx, of.Index); err != nil {
			return nil, Scan{}, err
		}
	}
	if q.Window != (Window{}) {
		rule, err := q.Window.covered(rules, &of)
		if err != nil {
			return nil, Scan{}, err
		}
		if begin = rule.Begin(); q.Groups {
			begin = later(begin, groupsBegin(of.Index))
		}
		of.From, of.To = q.Window.bounds(r.clock.Now())
	}
	b, err := r.boards.get(ctx, of, q)
	if err != nil {
		return nil, Scan{}, err
	}
	return b, Scan{CompleteAsOf: b.At, Partial: b.Partial || begin.After(b.Query.From.Time())}, nil
}

// checkServing returns a *NotServingError about the groups of an index that has no totals of groups yet.
func (r *Reader) checkServing(ctx context.Context, x *store.Index) error {
	err := r.checkGroups(ctx, []string{x.Overflow()})
	if not, ok := errors.AsType[*NotServingError](err); ok {
		not.Group = x.GroupPrefix() + "*"
	}
	return err
}

// rulesWith returns rules with the index of a query. It asks the store again before it says that there is none.
func (r *Reader) rulesWith(ctx context.Context, q *BoardQuery) (*store.Rules, error) {
	if err := r.checkStore(ctx); err != nil {
		return nil, err
	}
	for again := false; ; again = true {
		rules := r.settings.Load().Rules
		if q.has(rules.Index(q.Index)) {
			return rules, nil
		}
		if again {
			return nil, &NoIndexError{q.Index}
		}
		if err := r.askStore(ctx); err != nil {
			return nil, err
		}
	}
}

// placed numbers the best counters. Equal totals share a place, and the next place counts them.
func placed(best []board.Ranked) []TopCounter {
	all := make([]TopCounter, len(best))
	for i, c := range best {
		all[i] = TopCounter{c, i + 1}
		if i > 0 && c.Sum == best[i-1].Sum {
			all[i].Rank = all[i-1].Rank
		}
	}
	return all
}
