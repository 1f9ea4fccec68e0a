package sim

import (
	"errors"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// A totalOracle adds up the folds and the resets of each counter, and checks the answers to readers
// and operators.
type totalOracle struct {
	*World

	folded  map[string]int64 // to each counter
	removed map[string]int64 // by resets
	did     map[int]int64    // by each op
	told    map[string]answered
}

func newTotalOracle(w *World) *totalOracle {
	return &totalOracle{
		World: w, folded: make(map[string]int64), removed: make(map[string]int64), did: make(map[int]int64),
		told: make(map[string]answered),
	}
}

// applied takes in a commit that was applied.
func (to *totalOracle) applied(c *store.Commit) {
	for _, a := range c.Adds {
		to.folded[a.Counter] += a.Delta
	}
}

// reset takes in a reset, once.
func (to *totalOracle) reset(r *store.ResetRequest, done *store.ResetResult, by int) {
	to.removed[r.Counter] += int64(done.Removed.Lo)
	to.did[by] += int64(done.Removed.Lo)
}

// checkRemoved: folded increments are either removed by resets or still in the store.
func (to *totalOracle) checkRemoved() {
	for counter, folded := range to.folded {
		if countmill.IsGroup(counter) {
			continue
		}
		if left := to.db.left(counter); !to.crowd.overflows(counter) && left+to.removed[counter] != folded {
			to.violate("%d of %s were folded, resets removed %d, and %d are left", folded, counter, to.removed[counter], left)
		}
	}
}

// checkBoard: a leaderboard of all counters has what readers show, and nothing else.
func (to *totalOracle) checkBoard() {
	x := must(store.ParseIndex("board", "*", "board"))
	left := make(map[string]int64)
	for counter := range to.folded {
		if total, exists := to.db.servedAt(counter, to.db.moment()); exists && x.Has(counter) && !to.crowd.overflows(counter) {
			left[counter] = total
		}
	}
	must(to.db.own.Sums(background, &store.SumsQuery{Index: &x}, func(sum *store.CounterSum) error {
		counter := string(sum.Counter)
		if want, ok := left[counter]; !to.crowd.overflows(counter) && (!ok || want != sum.Sum) {
			to.violate("a board has %d of %s, and its total is %d (exists: %t)", sum.Sum, counter, want, ok)
		}
		delete(left, counter)
		return nil
	}))
	for counter, total := range left {
		if total == 0 {
			continue // after a sweep it may not have counted again
		}
		to.violate("a board lacks %s, whose total is %d", counter, total)
	}
}

// An answered is the answer to a reset with an id.
type answered struct {
	done   store.ResetResult
	jumped time.Duration // kernel.jumped when it was asked
}

// checkChange: a reset removes a sum of increments, each once. A reset that is repeated under its id
// has the same result each time.
func (to *totalOracle) checkChange(o *op) {
	if o.p.dead {
		return
	}
	if o.err != nil {
		to.checkNoTotal(o)
		return
	}
	if o.kind == "grow" {
		return
	}
	counter := o.names[0]
	if !increments(counter, int64(o.done.Removed.Lo)) {
		to.violate("a %s removed %d of %s, which is no sum of its increments", o.kind, o.done.Removed, counter)
	}
	if o.id == "" {
		if did := to.did[o.n]; did != int64(o.done.Removed.Lo) {
			to.violate("a %s of %s says that it removed %d, and removed %d", o.kind, counter, o.done.Removed, did)
		}
		return
	}
	key := counter + "/" + o.id
	first, again := to.told[key]
	if again && o.jumped < first.jumped {
		return // a late answer about a reset that may be forgotten since
	}
	// Beyond the window it is another reset.
	if again && first.jumped == to.jumped && (first.done.Removed != o.done.Removed || !first.done.At.Equal(o.done.At)) {
		to.violate("reset %s of %s was told that it removed %d as of %s, and now %d as of %s", o.id, counter,
			first.done.Removed, first.done.At.Format(clockFormat), o.done.Removed, o.done.At.Format(clockFormat))
	}
	to.told[key] = answered{o.done, o.jumped}
}

// increments reports whether a total is a sum of a counter's increments, none of them twice.
func increments(counter string, total int64) bool {
	if counter == below {
		total = -total
	}
	for rest := total; rest > 0; rest >>= 2 {
		if rest&3 > 1 {
			return false
		}
	}
	return total >= 0
}

// slack is how far a reader may be wrong about the store's clock: what its calls took.
const slack = 2 * time.Second

const clockFormat = "02 15:04:05.000000"

// checkRead: a reader serves totals that the store had, and none older than its client accepts.
func (to *totalOracle) checkRead(o *op) {
	if o.p.dead {
		return
	}
	if o.err != nil {
		to.checkNoTotal(o)
		to.checkNotWritten(o)
		return
	}
	to.Reads++
	for i := range o.totals {
		t := &o.totals[i]
		switch {
		case to.crowd.is(t.Counter):
			to.checkCrowdTotal(o, t.Total)
			continue
		case countmill.IsGroup(t.Counter):
			to.groups.check(o, t)
		}
		to.checkTotal(o, t)
		to.checkAge(o, t)
		to.checkSince(o, t)
	}
	to.checkWritten(o)
	if to.db.swapped && !o.p.told.IsZero() && o.from.After(o.p.told.Add(to.jumped)) && o.kind == "read" {
		to.violate("%s read totals of another database after it was told", o.p.name)
	}
}

// checkTotal: the store had this total at that time.
func (to *totalOracle) checkTotal(o *op, t *reader.Total) {
	was, exists := to.db.servedAt(t.Counter, t.AsOf)
	if was != t.Total || exists != t.Exists {
		to.violate("%s read %d of %s as of %s (exists: %t), when it was %d (%t)", o.p.name, t.Total, t.Counter, t.AsOf.Format(clockFormat), t.Exists, was, exists)
	}
	if !countmill.IsGroup(t.Counter) && !increments(t.Counter, t.Total) {
		to.violate("%s read %d of %s, which is no sum of its increments", o.p.name, t.Total, t.Counter)
	}
}

// checkAge: a total is not older than its reader was asked to accept.
func (to *totalOracle) checkAge(o *op, t *reader.Total) {
	staleness := o.staleness
	if staleness < 0 {
		staleness = 2 * time.Second
	}
	oldest, shown := o.from.Add(-staleness), to.showed(t.AsOf)
	if t.Source == reader.SourceCache { // a total that it reads itself has an age without any clock
		oldest = oldest.Add(-slack - o.doubt)
		if !o.p.learned {
			to.violate("%s served %s from the cache and has never learned the store's time", o.p.name, t.Counter)
		}
	}
	if to.jumped == o.jumped && shown.Before(oldest) {
		to.violate("%s read %s as of %s, %s before %s it was asked to accept at most", o.p.name, t.Counter,
			shown.Format(clockFormat), oldest.Sub(shown), oldest.Format(clockFormat))
	}
}

// checkNoTotal: an error is not to say that a counter overflows which does not.
func (to *totalOracle) checkNoTotal(o *op) {
	if !errors.Is(o.err, countmill.ErrOverflow) {
		return
	}
	for _, name := range o.names {
		if to.crowd.overflows(name) {
			return
		}
	}
	to.violate("%s says that one of %q overflows", o.p.name, o.names)
}

// checkCrowdTotal: it is a sum of the increments that were sent, and none is missing in the end.
func (to *totalOracle) checkCrowdTotal(o *op, total int64) {
	c := to.crowd
	n := total / c.delta
	if total%c.delta != 0 || n < 0 || n > int64(c.sent) {
		to.violate("the total of %s is %d: not a multiple of its increments, of which %d were sent", c.counter, total, c.sent)
	}
	if n += c.inDeadLetters(deadLetterSums(to.db.deadLetters())); o.final && n < int64(c.durable) {
		to.violate("the total of %s and its dead letters are %d increments, %d are durable", c.counter, n, c.durable)
	}
}
