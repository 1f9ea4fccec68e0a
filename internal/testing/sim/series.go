package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// drawRules draws the counters that keep series: none, some or all.
func (pl *plan) drawRules() {
	rng := pl.rng
	pl.rules = [][]string{nil, {"a", "page:*"}, {"*"}}[rng.IntN(3)]
	windows := []time.Duration{time.Minute, time.Hour, 24 * time.Hour}
	pl.ring = store.Ring{Buckets: 1 + rng.IntN(3), Window: windows[rng.IntN(3)], Minutes: 3 + rng.IntN(100)}
}

// keepForAll is the retention of every rule at first: longer than a schedule.
var keepForAll = store.Retention{Minutes: 6 * time.Hour, Quarters: store.MaxKeep}

// addRules writes the rules of the plan into the database, before anything is counted.
func (db *database) addRules() {
	for _, pattern := range db.rules {
		must(db.other.ChangeRules(background, store.RuleChange{Pattern: pattern, Keep: keepForAll}))
	}
}

// A seriesOracle compares the series with the ledger, minute by minute.
type seriesOracle struct {
	*World

	sent   map[string]map[int][]wire.Minute // the minutes of each digit of a counter, as messages have them
	odd    map[string]map[int]bool          // digits in messages that no publisher made: their parts are cut later
	folded map[string]map[wire.Minute]int64
	looks  []seriesLook
}

// A seriesLook is a view, and the sums of all folds until its moment.
type seriesLook struct {
	view   store.View
	folded map[string]map[wire.Minute]int64
}

// look opens a view of all series now, or checks an open one: folds and moves have come
// in between.
func (so *seriesOracle) look() {
	if len(so.rules) == 0 {
		return
	}
	if len(so.looks) < 3 {
		l := seriesLook{so.db.own.View(), make(map[string]map[wire.Minute]int64)}
		must(l.view.Series(background, nil, 0, 0)) // its moment
		for counter, folded := range so.folded {
			l.folded[counter] = maps.Clone(folded)
		}
		so.looks = append(so.looks, l)
		return
	}
	l := so.looks[0]
	so.looks = so.looks[1:]
	so.compareAll("in a view, ", &l)
}

func newSeriesOracle(w *World) *seriesOracle {
	return &seriesOracle{
		World: w, sent: make(map[string]map[int][]wire.Minute), odd: make(map[string]map[int]bool),
		folded: make(map[string]map[wire.Minute]int64),
	}
}

// digitsOf returns the increments in a delta of a counter.
func digitsOf(counter string, delta int64) (found []int) {
	for n := range digits {
		if s := (&sum{counter: counter, digit: n}); s.times(delta) > 0 {
			found = append(found, n)
		}
	}
	return found
}

// published notes at which minutes the increments of a message count.
func (so *seriesOracle) published(l *busMessage) {
	if len(so.rules) == 0 {
		return
	}
	if e, ok := l.entry(); ok {
		for _, n := range digitsOf(e.Counter, e.Delta) {
			put(so.odd, e.Counter, n, true)
		}
		return
	}
	b, err := l.decode()
	if err != nil {
		return
	}
	for i := range b.Parts {
		minute := b.Minute(&b.Parts[i])
		for _, e := range b.Parts[i].Entries {
			for _, n := range digitsOf(e.Counter, e.Delta) {
				put(so.sent, e.Counter, n, append(so.sent[e.Counter][n], minute))
			}
		}
	}
}

func put[K comparable, V any](in map[string]map[K]V, counter string, key K, value V) {
	if in[counter] == nil {
		in[counter] = make(map[K]V)
	}
	in[counter][key] = value
}

// applied: a commit adds one sum to a total and to its series.
func (so *seriesOracle) applied(c *store.Commit) {
	sums := make([]int64, len(c.Adds))
	for _, b := range c.Buckets {
		counter := c.Adds[b.Add].Counter
		sums[b.Add] += b.Delta
		put(so.folded, counter, b.Minute, so.folded[counter][b.Minute]+b.Delta)
	}
	for i, a := range c.Adds {
		if ruled := so.ruled(a.Counter); ruled && sums[i] != a.Delta || !ruled && sums[i] != 0 {
			so.violate("a commit adds %d to %s and %d to its series (under a rule: %t)", a.Delta, a.Counter, sums[i], ruled)
		}
	}
}

func (so *seriesOracle) ruled(counter string) bool {
	return slices.ContainsFunc(so.rules, func(pattern string) bool { return (&store.Rule{Pattern: pattern}).Matches(counter) })
}

// check compares, when all has come to rest, the series with the totals of the ledger.
func (so *seriesOracle) check(sums []*sum, totals map[string]int64) {
	for _, s := range sums {
		if so.ruled(s.counter) {
			so.checkSum(s, s.times(totals[s.counter]))
		}
	}
	so.compareAll("", &seriesLook{so.db.own.View(), so.folded})
}

// checkSum: an increment is in the series as often as in the total, and at its own minute. An increment
// more than a minute ahead of the clock that folded it may be earlier.
func (so *seriesOracle) checkSum(s *sum, counted int) {
	found := 0
	if own := wire.MinuteOf(s.at); !s.at.IsZero() && slices.ContainsFunc(so.sent[s.counter][s.digit], func(m wire.Minute) bool { return m != own }) {
		so.violate("increment %d of %s is of minute %d, and was sent for %v", s.digit, s.counter, own, so.sent[s.counter][s.digit])
	}
	for minute, total := range so.folded[s.counter] {
		n := s.times(total)
		if found += n; n == 0 || s.renewed || so.odd[s.counter][s.digit] {
			continue
		}
		sent := so.sent[s.counter][s.digit]
		if !slices.Contains(sent, minute) && !slices.ContainsFunc(sent, func(m wire.Minute) bool { return m > minute+1 }) {
			so.violate("increment %d of %s is in the series at minute %d, and was sent for %v", s.digit, s.counter, minute, sent)
		}
	}
	if found != counted {
		so.violate("increment %d of %s was counted %d times, and is %d times in the series", s.digit, s.counter, counted, found)
	}
}

// compareAll compares all series in a view, which it closes.
func (so *seriesOracle) compareAll(where string, l *seriesLook) {
	defer l.view.Close()
	var counters []string
	for counter := range l.folded {
		if _, swept := so.db.swept[counter]; !swept && !so.db.leaving[counter] && !so.crowd.overflows(counter) {
			counters = append(counters, counter)
		}
	}
	for i, found := range so.db.bucketsIn(l.view, counters...) {
		so.compare(where, counters[i], l.folded[counters[i]], found)
	}
}

// compare: the store has the buckets that were folded: each minute, and quarter hours where minutes were joined.
func (so *seriesOracle) compare(where, counter string, folded map[wire.Minute]int64, found []store.Bucket) {
	joined := make(map[wire.Minute]bool)
	for _, b := range found {
		if b.Quarter {
			joined[b.Minute] = true
		}
	}
	place := func(m wire.Minute) wire.Minute {
		if quarter := store.QuarterOf(m); joined[quarter] {
			return quarter
		}
		return m
	}
	left := make(map[wire.Minute]int64)
	for minute, sum := range folded {
		left[place(minute)] += sum
	}
	for _, b := range found {
		left[place(b.Minute)] -= int64(b.Sum.Lo)
	}
	for minute, off := range left {
		if off != 0 {
			so.violate("%sthe series of %s lacks %d at minute %d (joined: %t)", where, counter, off, minute, joined[minute])
		}
	}
}
