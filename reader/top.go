package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// AtOnce asks for the board that there is, however old, for a caller that soon asks again. It waits only for the first one.
	AtOnce bool
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

// Moments are the two moments of an answer about a board.
type Moments struct {
	// AsOf is the moment at which the totals of the answer are exact.
	AsOf time.Time
	// CompleteAsOf is the moment at which all counters of the index were looked at.
	CompleteAsOf time.Time
	// Complete is true if the answer is proved to be right at AsOf too. See package board. For a window of groups it is false while the
	// overflow group exists and has no series.
	Complete bool
	// Partial is true if the window began before the rule for its series. Totals have no window.
	Partial bool
}

// A Top is the best counters, the best first. Counters with equal totals are in the order of their
// names. From a window those with a sum of 0 are left out.
type Top struct {
	Moments
	Top []TopCounter
	// Overflowed are counters that have no place, because their total does not fit 64 bits, by name: at most 100 of those that the scan found, and
	// candidates.
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

// Top returns the best counters of an index. If the board that names them is older than Config.BoardAge,
// the next one is made meanwhile. A call waits for the first board. If a board is older than twice that age, it waits for the
// next one too, for two seconds or half of its own time at most, where the last scan took no longer.
//
// An error matches countmill.ErrInvalid if the query is wrong, ErrNoBoards if no scans are made, and
// countmill.ErrUnavailable if the store cannot be read or the first board is not made in time; or it is a
// *NoIndexError, a *NotServingError or a *NoWindowError.
func (r *Reader) Top(ctx context.Context, q TopQuery) (Top, error) {
	if q.N < 1 || q.N > MaxTop {
		return Top{}, &countmill.FieldError{Field: "n", Problem: "is out of range", Limit: "1 to " + strconv.Itoa(MaxTop)}
	}
	br, err := r.openBoard(ctx, q.BoardQuery)
	if err != nil {
		return Top{}, err
	}
	defer br.view.Close()
	pick := &picking{boardReading: br, q: &q, next: br.board.Candidates}
	if err := pick.run(ctx, slices.Concat(br.board.Overflowed, r.busyOf(ctx, br))); err != nil {
		return Top{}, err
	}
	return pick.top(), nil
}

// A boardReading reads counters of a board in one view.
type boardReading struct {
	*reading
	board  *board.Board
	window Window
	rise   store.Rise
	moment Moments
	query  store.SumsQuery // its window is that of the view
	// uncovered is the overflow group, if it has no series for the window although the other groups have; nil otherwise.
	uncovered *partial
	// overflowed are counters that were read and have no sum, as it does not fit 64 bits.
	overflowed []string
}

// openBoard finds the board, and opens a view.
func (r *Reader) openBoard(ctx context.Context, q BoardQuery) (*boardReading, error) {
	rules, err := r.rulesWith(ctx, &q)
	if err != nil {
		return nil, err
	}
	br := &boardReading{window: q.Window, query: store.SumsQuery{Index: rules.Index(q.Index), Groups: q.Groups}}
	if q.Groups {
		if err := r.checkServing(ctx, br.query.Index); err != nil {
			return nil, err
		}
	}
	if q.Window != (Window{}) {
		rule, err := q.Window.covered(rules, &br.query)
		if err != nil {
			return nil, err
		}
		br.query.From, br.query.To = q.Window.bounds(r.clock.Now())
		begin := rule.Begin()
		if q.Groups {
			begin = later(begin, groupsBegin(br.query.Index))
		}
		br.moment.Partial = begin.After(br.query.From.Time())
		if q.Groups && !q.Window.coversOverflow(rules, br.query.Index) {
			br.uncovered = &partial{counter: br.query.Index.Overflow()}
		}
	}
	if br.board, err = r.boards.get(ctx, br.query, q.Window.slides(), &q); err != nil {
		return nil, err
	}
	br.reading = r.newReading(r.store.View())
	return br, nil
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

// busyOf returns the counters of the board's index that move most, and are no candidates. They are a hint where
// scans are rare, and prove nothing.
func (r *Reader) busyOf(ctx context.Context, br *boardReading) (names []string) {
	if br.board.Query.Rate == 0 {
		return nil // scans are frequent
	}
	for _, b := range r.Busiest(ctx) {
		if br.query.Has(b.Counter) && !slices.ContainsFunc(br.board.Candidates, func(c board.Candidate) bool { return c.Counter == b.Counter }) {
			names = append(names, b.Counter)
		}
	}
	return names
}

// sums reads counters, and leaves out those without a sum. All calls read at one moment.
func (br *boardReading) sums(ctx context.Context, counters []string) ([]board.Ranked, error) {
	first, began := br.moment.AsOf.IsZero(), br.r.clock.Moment()
	switch {
	case first && br.uncovered != nil:
		br.askOf(br.uncovered)
	case first && len(counters) == 0:
		counters = []string{br.query.Index.Overflow()} // an answer without counters has a moment too
	}
	from := len(br.partials)
	for _, c := range counters {
		if br.uncovered == nil || c != br.uncovered.counter {
			br.ask(c)
		}
	}
	if err := br.run(ctx); err != nil {
		return nil, err
	}
	if first {
		br.settle()
		br.r.clock.Learn(br.moment.AsOf, began)
		if err := br.checkIndex(ctx); err != nil {
			return nil, err
		}
	}
	return br.ranked(ctx, br.partials[from:])
}

// checkIndex is checkRead for the groups of a board: the wait for the first board can be longer than the groups of an
// index stay after its end.
func (br *boardReading) checkIndex(ctx context.Context) error {
	if !br.query.Groups {
		return nil
	}
	if asked := br.r.asked.Load(); asked == nil || br.moment.AsOf.Sub(*asked) > store.SettingsMaxAge {
		if err := br.r.askStore(ctx); err != nil {
			return err
		}
	}
	x := br.query.Index
	switch now := br.r.settings.Load().Rules.Index(x.Name); {
	case now == nil || now.Number != x.Number:
		return &NoIndexError{x.Name}
	case !now.InForce():
		return &NotServingError{Group: x.GroupPrefix() + "*", Index: x.Name, Deleting: true}
	}
	return nil
}

// settle notes the moment of the view, and how far sums have risen by then at most.
func (br *boardReading) settle() {
	br.moment.AsOf, br.moment.CompleteAsOf = br.view.ReadTime(), br.board.At
	br.rise = br.r.store.Risen(&br.query, br.board.Mark) // after the view is pinned
	if br.window == (Window{}) {
		return
	}
	br.query.From, br.query.To = br.window.bounds(br.moment.AsOf)
	scanned := &br.board.Query
	if br.query.From < scanned.From || br.query.From != scanned.From && !br.board.Slides || br.query.To != scanned.To {
		br.rise = store.Rise{Changed: true} // another window than that of the scan
	}
	if br.uncovered != nil && br.uncovered.exists {
		br.rise = store.Rise{Changed: true} // nobody knows its place
	}
}

// A picking reads candidates until the best ones are certain, or until there are no more.
type picking struct {
	*boardReading
	q    *TopQuery
	next []board.Candidate // not read yet

	found []board.Ranked // in order
}

// picked is the number of candidates that are read where nothing can be certain and each read costs money: more
// than were asked for, because the order may have changed since the scan. For totals it is twice as many. A window
// costs a read for each shard and day.
func (p *picking) picked() int {
	if p.query.To > 0 {
		return p.q.N + max(10, p.q.N/4)
	}
	return max(100, 2*p.q.N)
}

// run reads these counters beside the candidates.
func (p *picking) run(ctx context.Context, names []string) error {
	lot := p.q.N + p.q.N/4
	if p.board.Query.Rate > 0 {
		lot = p.picked()
	}
	for ; ; lot = 200 {
		for ; lot > 0 && len(p.next) > 0; lot-- {
			names, p.next = append(names, p.next[0].Counter), p.next[1:]
		}
		found, err := p.sums(ctx, names)
		if err != nil {
			return err
		}
		p.found = append(p.found, found...)
		slices.SortFunc(p.found, board.Compare)
		if names = names[:0]; len(p.next) == 0 || p.certain() {
			return nil
		}
	}
}

// certain reports whether no candidate that was not read can be among the best, or that cannot be known.
func (p *picking) certain() bool {
	if len(p.found) < p.q.N {
		return false
	}
	last := p.found[p.q.N-1].Sum
	if !p.board.Proves(last, true, p.rise) {
		return true // reading on would prove nothing, and the names are those of the scan
	}
	return last > board.Most(p.next[0].Rest, p.rise) || !p.rise.Changed && !p.board.Slides
}

func (p *picking) top() Top {
	slices.Sort(p.overflowed)
	t := Top{Moments: p.moment, Top: placed(p.found[:min(len(p.found), p.q.N)]), Overflowed: p.overflowed}
	full, last := len(t.Top) == p.q.N, int64(0)
	if full {
		last = t.Top[p.q.N-1].Sum
	}
	t.Complete = p.board.Proves(last, full, p.rise)
	if t.Complete && !p.rise.Changed && !p.board.Slides {
		t.CompleteAsOf = t.AsOf // nothing has changed since
	}
	return t
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
