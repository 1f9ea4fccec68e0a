package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/internal/sysenv"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// A Result is what a schedule did, and what was wrong.
type Result struct {
	Seed       uint64
	Violations []string
	Hash       uint64 // of the trace
	Trace      []string
	Calls      int // of bus and store
	Steps      int
	Reads      int // that were answered and checked
	Conflicts  int // increments refused because their ids were counted with another delta
	Whole      int // requests that were committed under one marker
	Replayed   int // letters that were asked for, at their removal
	Resets     int // that were applied
	Swept      int // counters
	Grown      int // records that were raised to name more shards
	Outdated   int // folds with markers by settings that had been changed
	Outlasted  int // calls of a store that were under way while the machine was suspended
	Faults     [faultCount]int
	Rows       [rowCount]int
	Shapes     [shapeCount]int
	Virtual    time.Duration
}

// shape is what a schedule's processes are like.
type shape struct {
	linger, window, timeout, drain, announce           time.Duration
	maxEntries, maxBytes, inFlight                     int
	windowMessages, windowCounters, held, commits      int
	remember, letterRate, shards, counters, publishers int
	maxShards                                          int
	shardRate                                          float64
	aggregators, readers, entities                     int
	flood                                              bool
	staleness                                          time.Duration
	budget                                             time.Duration // instead of lingers; 0 for none
	works, minSteps                                    int
	operator                                           bool
	eventRate, advanceRate                             float64
}

// A World is one schedule.
type World struct {
	Result

	rng     *rand.Rand
	seed    uint64
	verbose bool
	digest  xxhash.Digest
	began   time.Time

	rates     [faultCount]float64
	stormy    bool
	shape     shape
	embedded  bool
	swapped   bool
	restored  bool          // what starts now does so from the image of the one before it
	jumped    time.Duration // written under mu
	storeSkew time.Duration // written under mu
	stepped   time.Duration // of that, what came while it ran
	steps     []storeStep
	until     [faultCount]time.Time
	changing  bool            // the window will be
	windows   []time.Duration // all that the database's settings had, the last one in effect

	fake   *fakestore.Store
	cache  *memory.Cache
	sets   map[string][]store.CachedTotal
	bus    *broker
	ghosts []func() error
	marked map[wire.PartID]bool
	rests  map[wire.Use][]wire.PartID // of requests with keys, by their heads
	// Parts of discarded letters, and since which step nobody may count them.
	tossed    map[wire.PartID]bool
	forbidden map[wire.PartID]int
	gone      []store.DeadLetter      // letters that were removed and not discarded
	doomed    map[string]bool         // letters that were to be discarded when the store forgot it, by key
	cured     int                     // the step from which on the store refuses no content; 0 for none
	commits   map[*step]*store.Commit // guarded by mu

	procs    int
	procsAll []*proc
	stage    stage
	rested   time.Time // since when nothing is left to do, and left is the same
	left     string    // the holdings then
	done     bool
	clients  *proc
	alive    [node + 1][]*proc // by role and slot; a dead one until it lives again

	folded  map[string]int64 // to each counter
	removed map[string]int64 // by resets
	did     map[int]int64    // by each op
	told    map[string]answered

	unreset   []string // counters that an operator has yet to reset at the end
	lastReset *op
	tries     int

	ledger     []*sum
	rivals     []rivalry
	used       map[string]int
	sealed     map[string]string
	garbage    []string
	replays    []store.DeadLetter // that were asked for
	unreadable bool               // letters were asked for
	crowd      *crowd             // nil in most schedules
	contest    *contest           // nil in most schedules
	requests   requests
	swept      map[string]int // in which step each counter was swept last
	ops        int
	asked      map[*op]struct{}
	again      []*op

	pending []*step
	running sync.WaitGroup // what has to come to its end

	mu       sync.Mutex
	arrived  []*step
	finished []*op
}

// Run runs the schedule of a seed. It has to be called in a bubble of testing/synctest.
func Run(seed uint64, verbose bool) *Result {
	<-time.After(time.Until(sysenv.Earliest.AddDate(1, 0, 0))) // a bubble begins in the year 2000, when no clock was right
	w := newWorld(seed, verbose)
	w.play()
	w.verdict()
	w.Hash = w.digest.Sum64()
	w.Virtual = time.Since(w.began)
	return &w.Result
}

func newWorld(seed uint64, verbose bool) *World {
	w := &World{
		rng: rand.New(rand.NewPCG(seed, 0x636f756e74)), seed: seed, verbose: verbose, began: time.Now(),
		sets: make(map[string][]store.CachedTotal), used: make(map[string]int), sealed: make(map[string]string),
		asked: make(map[*op]struct{}), marked: make(map[wire.PartID]bool), rests: make(map[wire.Use][]wire.PartID), stormy: true,
		tossed: make(map[wire.PartID]bool), forbidden: make(map[wire.PartID]int), doomed: make(map[string]bool),
		folded: make(map[string]int64), removed: make(map[string]int64), told: make(map[string]answered), swept: make(map[string]int), requests: make(requests), did: make(map[int]int64),
	}
	w.Seed = seed
	w.digest.Reset()
	w.rates = weather(w.rng)
	w.mail()
	w.drawWindows()
	w.embedded = w.rng.IntN(6) == 0
	w.shape = w.drawShape()
	w.crowd = w.drawCrowd()
	w.contest = w.drawContest()
	w.ages()
	if w.embedded {
		w.calm()
	}
	if w.changing {
		w.shape.minSteps += 200
		w.shape.works += 10
		w.shape.eventRate = max(w.shape.eventRate, 0.04)
	}
	if w.rates[TwoVersions] > 0 || w.rates[ReplayAsked] > 0 {
		w.shape.minSteps += 200 // time for messages and letters to wait, and to be counted
	}
	if w.shape.operator = w.rng.IntN(3) == 0; w.shape.operator {
		w.rates[DayPasses], w.rates[Swept] = 0.1, 0.1
		if w.rng.IntN(2) == 0 && !w.embedded {
			w.rates[FoldContended] = 0.3 // deleted counters that were to get more shards
		}
		w.shape.works += 10
		w.shape.eventRate = max(w.shape.eventRate, 0.02)
	}
	if w.rates[StoreClockSkewed] > 0 && w.rng.IntN(2) == 0 {
		w.storeSkew = w.drawSkew(client).Truncate(time.Microsecond) // as the times it gives out are
		w.hit(StoreClockSkewed)
	}
	w.steps = []storeStep{{skew: w.storeSkew}}
	options := fakestore.Options{
		Window:   w.windows[0],
		Entities: w.shape.entities, History: true, NeedRecords: true, GrowsInFold: w.embedded, CertainOutcome: w.embedded, Clock: w.storeNow,
		Errorf: func(format string, args ...any) { w.violate(format, args...) },
		Defer:  func(int, store.Key) bool { return w.strikes(LookupDeferred) },
	}
	if w.embedded && w.rng.IntN(2) == 0 {
		options.Age = w.age
	}
	w.fake = fakestore.New(options)
	w.describe()
	w.cache = must(memory.New(memory.Config{Totals: 16}))
	w.bus = &broker{w: w}
	w.clients = &proc{w: w, name: "clients"}
	for r := range w.alive {
		w.alive[r] = make([]*proc, w.count(role(r)))
		for slot := range w.alive[r] {
			w.start(role(r), slot)
		}
	}
	return w
}

// count is how many processes of a role there are.
func (w *World) count(r role) int {
	switch {
	case w.embedded:
		return map[role]int{node: 1}[r]
	case r == publishing:
		return w.shape.publishers
	case r == aggregating:
		return w.shape.aggregators
	case r == reading:
		return w.shape.readers
	}
	return 0
}

func (w *World) drawShape() shape {
	r := w.rng
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
		letterRate: numbers(1, 100), shards: r.IntN(4), counters: r.IntN(4),
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

// calm leaves what can happen on one machine: its bus never repeats, and an unknown
// outcome of its store ends the process.
func (w *World) calm() {
	for f := range w.rates {
		switch Fault(f) {
		case FoldApplied, FoldNotApplied, FoldNotBegun, KillPublisher, ClockJumps, PastWindow, Suspended, AnswerWaits, WindowLonger, WindowShorter, Drain, ShardsRaised, CallerGivesUp, ResetLost, ResetAnswerLost, ResetLate,
			OtherPublisher, IDReused, Poison, CacheFails, CacheForgets, CacheStale, CacheSwapped, LookupFails, ReadFails:
		default:
			w.rates[f] = 0
		}
	}
	w.shape.entities = 1 << 20
	w.shape.commits = 1
	w.shape.budget = 0
}

// drawSkew is how far a clock is off. An aggregator's may be off by any time. The others
// not by more than the two hours that markers outlive the window: a request that waits in
// a publisher for longer than the window would look young where its clock is ahead.
func (w *World) drawSkew(r role) time.Duration {
	far := []time.Duration{time.Second, time.Minute, time.Hour}[w.rng.IntN(3)]
	if r == aggregating && w.rng.IntN(2) == 0 {
		far = 12 * time.Hour
	}
	by := time.Duration(w.rng.Int64N(int64(2*far))) - far
	if r == aggregating && w.rng.IntN(2) == 0 {
		by = -by.Abs() // the worse way to be off
	}
	return by
}

// leastCalls is how many calls of bus and store a schedule has before it ends.
const leastCalls = 50

// longStorm is how many steps it may take to come to that many before nothing breaks any
// more; the last ones are reads.
const longStorm = 1000

// most is where a schedule counts as stuck.
const most = 20_000

func (w *World) play() {
	started := 0
	for w.Steps = 0; w.Steps < most; w.Steps++ {
		w.settle()
		if len(w.Violations) > 0 {
			break
		}
		busy := started < w.shape.works || w.Calls < leastCalls && w.Steps < longStorm
		switch {
		case w.stage > storm || !busy && w.Steps >= w.shape.minSteps:
			w.clearUp()
		case busy && w.rng.Float64() < 0.15:
			started++
			w.work()
		default:
			w.move()
		}
		if w.done {
			break
		}
	}
	if w.Steps == most && len(w.Violations) == 0 {
		w.violate("not at rest after %d steps: %s", most, w.remains())
	}
	w.leave()
}

// settle takes in what has happened since the last step, until that leads to nothing
// more: a choice that is made while goroutines still run would be another one next time.
func (w *World) settle() {
	for again := true; again; {
		synctest.Wait()
		again = w.absorb()
		again = w.supervise() || again
	}
	w.checkMemory()
}

func (w *World) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	if !slices.Contains(w.Violations, v) {
		w.Violations = append(w.Violations, v)
	}
	w.say(nil, "WRONG %s", v)
}

// remains names what has not come to rest.
func (w *World) remains() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d ops unanswered, %d to repeat, %d messages queued, %d held, %d on their way; waiting:",
		len(w.asked), len(w.again), len(w.bus.queue), len(w.bus.held), len(w.ghosts))
	for _, s := range w.pending {
		fmt.Fprintf(&b, " %s %s (frozen %t, slow %t)", s.p.name, s.op, s.p.frozen, s.slow)
	}
	return b.String()
}
