package sim

import (
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// A World is one schedule. Its parts know each other through it.
type World struct {
	*kernel

	bus   *broker
	db    *database
	cache *cacheServer
	procs *processes

	parts  *partOracle
	totals *totalOracle
	series *seriesOracle
	groups *groupOracle
	kept   *journalOracle
	values *valueOracle
	ledger *ledger
	idle   *idleOracle

	callers    *callers
	clients    *clients
	readers    *readClients
	operator   *operator
	pagers     *pageClients
	sequencers *sequenceClients
	race       *race
	neighbour  *neighbour // nil in most schedules

	events map[Fault]func() bool
	stage  stage
	done   bool
}

// Run runs the schedule of a seed. It has to be called in a bubble of testing/synctest.
func Run(seed uint64, verbose bool) *Result { return runVariant(new(variant), seed, verbose) }

func runVariant(v *variant, seed uint64, verbose bool) *Result {
	<-time.After(time.Until(clock.Earliest.AddDate(1, 0, 0))) // a bubble begins in the year 2000, when no clock was right
	w := newWorld(v, seed, verbose)
	w.play()
	w.say(nil, "%d calls of bus and store, %d violations", w.Calls, len(w.Violations))
	w.Virtual = time.Since(w.began)
	return &w.Result
}

func newWorld(v *variant, seed uint64, verbose bool) *World {
	w := &World{kernel: newKernel(seed, verbose, v.machine)}
	v.apply(w.kernel)
	w.db, w.bus = newDatabase(w, v.machine), &broker{World: w}
	w.parts, w.totals, w.series, w.groups = newPartOracle(w), newTotalOracle(w), newSeriesOracle(w), newGroupOracle(w)
	w.kept, w.values, w.ledger, w.idle = &journalOracle{w}, newValueOracle(w), &ledger{World: w, used: make(map[string]int)}, &idleOracle{World: w}
	w.db.addRules()
	w.db.addJournal()
	w.db.openJournal()
	w.describe()
	w.cache = &cacheServer{kernel: w.kernel, cache: must(memory.New(memory.Config{Totals: 16})), sets: make(map[string][]store.CachedTotal)}
	w.db.createFirst()
	w.procs, w.callers = &processes{World: w}, newCallers(w)
	w.clients, w.readers, w.operator = &clients{callers: w.callers}, &readClients{callers: w.callers}, &operator{callers: w.callers}
	w.pagers, w.sequencers, w.race = &pageClients{callers: w.callers}, &sequenceClients{callers: w.callers}, &race{World: w}
	if w.plan.neighbour != noNeighbour {
		w.neighbour = newNeighbour(w.callers)
	}
	w.events = w.newEvents()
	w.procs.startAll()
	return w
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
		busy := started < w.shape.works || w.Calls < w.least && w.Steps < longStorm
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
	w.db.end(len(w.Violations) == 0)
}

// settle takes in events since the last step until nothing more follows from them. A choice made
// while goroutines still run would be another one next time.
func (w *World) settle() {
	for again := true; again; {
		synctest.Wait()
		again = w.absorb()
		again = w.procs.supervise() || again
	}
	w.procs.checkMemory()
}

// remains names everything that has not come to rest.
func (w *World) remains() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d ops unanswered, %d to repeat, %d messages queued, %d held, %d on their way; waiting:",
		len(w.callers.asked), len(w.clients.again), len(w.bus.queue), len(w.bus.held), len(w.delayed))
	for _, s := range w.pending {
		fmt.Fprintf(&b, " %s %s (frozen %t, slow %t)", s.p.name, s.op, s.p.frozen, s.slow)
	}
	return b.String()
}

// absorb takes in the results of goroutines since the last step, and reports whether any of them can
// go on now.
func (w *World) absorb() bool {
	finished := w.callers.answered()
	w.arrivals()
	changed := w.bus.absorb() || len(finished) > 0
	for _, o := range finished {
		w.callers.finish(o)
	}
	return changed
}

// applied sees a commit after it was applied. called is the step in which p asked for it.
func (w *World) applied(p *proc, c *store.Commit, called int) {
	w.parts.applied(p, c, called)
	w.totals.applied(c)
	w.series.applied(c)
	w.groups.applied(c)
}
