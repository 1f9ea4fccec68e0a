package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// A plan is drawn from the seed before the schedule begins. It says which faults the schedule may
// have and what its processes are like.
type plan struct {
	rng       *rand.Rand
	seed      uint64
	rates     [mostFaults]float64
	shape     shape
	embedded  bool
	limits    engine.Limits  // of the database
	changing  bool           // the window will change
	rules     []string       // the patterns of counters with series
	ring      store.Ring     // of a store that is not embedded
	window1   time.Duration  // the first deduplication window of the database
	cured     int            // the step from which on the store refuses no content; 0 for none
	journal   map[string]int // days by pattern; nil in a third of the schedules
	crowd     *crowd         // nil in most schedules
	contest   *contest       // nil in most schedules
	remotes   int            // publishers outside `up`; 0 in most schedules
	outside   bool           // with roles apart: all publishers send over HTTP
	indexed   *indexPlan     // nil in most schedules
	pages     *pagePlan      // nil in most schedules
	sequences int            // that clients ask for values of; 0 in most schedules
	neighbour neighbourKind  // noNeighbour in most schedules
	least     int            // calls of bus and store before it ends
}

// drawPlan draws with rng, for a machine or the engine in memory.
func drawPlan(rng *rand.Rand, seed uint64, m Machine) *plan {
	pl := &plan{rng: rng, seed: seed, rates: weather(rng), least: leastCalls}
	pl.drawDeadLetters()
	pl.drawWindows()
	pl.drawRules()
	pl.drawJournal()
	if pl.embedded = rng.IntN(6) == 0; m != nil {
		pl.embedded = m.Up()
	}
	pl.shape = drawShape(rng)
	if len(pl.rules)+len(pl.journal) > 0 {
		pl.shape.entities = max(pl.shape.entities, 60) // a part of 24 counters may add 24 days to the archive
	}
	pl.crowd = pl.drawCrowd()
	pl.contest = pl.drawContest()
	pl.drawAges()
	if pl.embedded {
		pl.calm()
	}
	pl.drawRemotes()
	if pl.changing {
		pl.shape.minSteps += 200
		pl.shape.works += 10
		pl.shape.eventRate = max(pl.shape.eventRate, 0.04)
	}
	if pl.rates[TwoVersions] > 0 || pl.rates[ReplayAsked] > 0 {
		pl.shape.minSteps += 200 // time for messages and letters to wait, and to be counted
	}
	if pl.shape.operator = rng.IntN(3) == 0; pl.shape.operator {
		pl.drawOperator(rng)
	}
	pl.drawIndexes()
	pl.drawPages()
	pl.drawSequences()
	pl.drawEngine()
	pl.drawNeighbour()
	return pl
}

// drawEngine draws the facts about the database: those of Pebble where one process has it, and otherwise
// those of Datastore or PostgreSQL.
func (pl *plan) drawEngine() {
	rng := pl.rng
	pl.limits = engine.Limits{Commits: pl.shape.commits, Keys: []int{20, 1000}[rng.IntN(2)], RowBytes: 8 << 20}
	l := &pl.limits
	switch {
	case pl.embedded:
		l.Exclusive, l.CertainOutcome, l.Conditions, l.FreeUpserts = true, true, true, true
	case rng.IntN(3) == 0:
		l.Conditions, l.Clock, l.ByName = true, true, true
		l.Rows, l.RowRate = pl.shape.entities, 300
	default:
		l.RowsCost, l.Spread, l.Returns, l.MaxThenAdd, l.Clock, l.Expires, l.ByName = true, true, true, true, true, true, true
		l.Rows, l.Fields, l.RowBytes, l.Bytes, l.RowRate = pl.shape.entities, 500, 900<<10, 9<<20, 1
	}
	for _, f := range slices.Concat([]Fault{Conflicts}, settingsChanges.all(), sweeps.all()) {
		if pl.rates[f] = []float64{0, 0.1, 0.3}[rng.IntN(3)]; pl.embedded {
			pl.rates[f] = 0
		}
	}
}

// drawOperator makes room for an operator: time that passes, counters to sweep, and more to do.
func (pl *plan) drawOperator(rng *rand.Rand) {
	pl.rates[DayPasses], pl.rates[Swept] = 0.1, 0.1
	if rng.IntN(2) == 0 && !pl.embedded {
		pl.rates[FoldContended] = 0.3 // deleted counters that were to get more shards
	}
	pl.shape.works += 10
	pl.shape.eventRate = max(pl.shape.eventRate, 0.02)
}

// weather draws which faults a schedule has, and how often. A schedule with all of them at once
// would hardly get anything done, and would hide the effects of a few together.
func weather(rng *rand.Rand) (rates [mostFaults]float64) {
	share := []float64{0, 0.15, 0.3, 0.5}[rng.IntN(4)]
	for f := range GivenUp {
		if rng.Float64() < share {
			rates[f] = []float64{0.02, 0.1, 0.3}[rng.IntN(3)]
		}
	}
	if rng.IntN(4) == 0 {
		rates[TwoVersions] = 0.3
	}
	if rng.IntN(4) == 0 { // what counters get more shards for
		rates[FoldContended] = 0.3
	}
	rates[DayPasses], rates[Swept] = 0, 0 // for those with an operator, who says how often
	return rates
}

// shape has the settings of a schedule's processes, and how much happens.
type shape struct {
	linger, window, timeout, drain, announce               time.Duration
	maxEntries, maxBytes, inFlight                         int
	windowMessages, windowCounters, held, commits          int
	remember, deadLetterRate, shards, counters, publishers int
	maxShards                                              int
	shardRate                                              float64
	aggregators, readers, entities                         int
	flood                                                  bool
	staleness                                              time.Duration
	budget                                                 time.Duration // instead of lingers; 0 for none
	works, minSteps                                        int
	operator                                               bool
	eventRate, advanceRate                                 float64
}

func drawShape(r *rand.Rand) shape {
	durations := func(d ...time.Duration) time.Duration { return oddly(r, d[r.IntN(len(d))]) }
	numbers := func(n ...int) int { return n[r.IntN(len(n))] }
	return shape{
		linger:   durations(-1, time.Millisecond, 50*time.Millisecond, 250*time.Millisecond),
		window:   durations(-1, time.Millisecond, 100*time.Millisecond),
		timeout:  durations(500*time.Millisecond, 2*time.Second, 10*time.Second, 10*time.Second, 90*time.Second),
		drain:    durations(time.Second, 20*time.Second),
		announce: durations(5 * time.Second),

		maxEntries: numbers(8, 40, 1000), maxBytes: numbers(1500, 5000, 1<<20), inFlight: numbers(1, 2, 8),
		windowMessages: numbers(1, 2, 5, 100), windowCounters: numbers(3, 10, 1000),
		held: numbers(1, 3, 10), commits: numbers(1, 2, 4), remember: numbers(2, 4, 100),
		deadLetterRate: numbers(1, 100), shards: r.IntN(4), counters: r.IntN(4),
		publishers: numbers(1, 2, 3), aggregators: numbers(1, 2, 3), readers: numbers(1, 2),
		maxShards: numbers(2, 5, 16, 128), shardRate: []float64{-1, 0.001, 0.01, 0.1, 1}[r.IntN(5)],
		entities: numbers(25, 30, 400), flood: r.IntN(25) == 0, staleness: drawStaleness(r),
		works: 4 + r.IntN(20), minSteps: r.IntN(200),
		eventRate: []float64{0, 0.02, 0.05}[r.IntN(3)], advanceRate: []float64{0.02, 0.1, 0.3}[r.IntN(3)],
		budget: oddly(r, []time.Duration{-1, -1, 200 * time.Millisecond, time.Second, 10 * time.Second}[r.IntN(5)]),
	}
}

// oddly makes a duration a little longer, so that no two ends of waiting fall on the same
// instant: which of their goroutines then comes first is up to Go's scheduler.
func oddly(r *rand.Rand, d time.Duration) time.Duration {
	if d < 0 {
		return d
	}
	return d + time.Duration(1+r.IntN(10_000))
}

// ofOneMachine may happen where one process has the database: its bus never repeats, and an unknown outcome of its store ends the process.
var ofOneMachine = append(resets.all(), FoldApplied, FoldNotApplied, FoldNotBegun, KillPublisher, ClockJumps, PastWindow, Suspended, AnswerWaits, WindowLonger, WindowShorter,
	Drain, ShardsGrown, CallerGivesUp, OtherPublisher, IDReused, Poison, CacheFails, CacheForgets, CacheStale, CacheSwapped, LookupFails, ReadFails)

// calm leaves only the faults of one machine.
func (pl *plan) calm() {
	for f := range pl.rates {
		if !slices.Contains(ofOneMachine, Fault(f)) {
			pl.rates[f] = 0
		}
	}
	pl.shape.entities = 1 << 20
	pl.shape.commits = 1
	pl.shape.budget = 0
}

// newerComes reports whether there are messages of the second version.
func (pl *plan) newerComes() bool { return pl.rates[TwoVersions] > 0 || pl.rates[NewerVersion] > 0 }

// lingerOf returns the linger, or 0 if a budget of staleness replaces it.
func (s *shape) lingerOf(linger time.Duration) time.Duration {
	if s.budget > 0 {
		return 0
	}
	return linger
}

// budgetOf is a little more for each process: publishers with the same one would flush at the
// same instant.
func (s *shape) budgetOf(p *proc) time.Duration {
	if s.budget <= 0 {
		return 0
	}
	return s.budget + time.Duration(p.n)*1013
}
