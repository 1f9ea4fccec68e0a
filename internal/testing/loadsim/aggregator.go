package loadsim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/countmill/countmill/internal/shards"
)

// An aggregator goes through the steps of the real one (package aggregator, loop): messages
// gather in a window, which is cut into jobs, each one commit, when it is due, full, and a
// commit may begin.
type aggregator struct {
	w       *world
	chooser Chooser
	random  *rand.Rand
	linger  linger

	bus    []time.Duration // when the messages were sealed that it has not taken
	window []time.Duration // the same of those in the open window
	opened time.Duration
	held   int
	jobs   []*job
	timer  time.Duration // the soonest planned wake
	// running commits, and shards of each counter that it knows of.
	running int
	shards  []uint16
	read    []time.Duration // when it read the record of each; nil if that does not matter
}

// A job is the part of a window that one commit takes.
type job struct {
	lots     []lot
	parts    int
	adds     []add // in the order of their counters
	attempts int
	after    time.Duration
	waits    bool // for a shard that another commit has
	waited   bool // so, at some time
}

// A lot is the part of a job that comes from one window.
type lot struct {
	of     *taken
	sealed []time.Duration // its messages
	weight float64         // increments of each of them in the job
}

// taken is a window whose jobs are not all done.
type taken struct{ messages, jobs int }

// An add is one shard of a commit.
type add struct {
	counter int32
	shard   int32
	n       int32 // shards of the counter, as the committer knows
	tally   int64 // answers
	known   int32
}

// deliver is a message that arrives.
func (a *aggregator) deliver(at, sealed time.Duration) {
	a.bus = append(a.bus, sealed)
	a.launch(at)
}

// launch starts all jobs that can start.
func (a *aggregator) launch(at time.Duration) {
	for {
		a.take(at)
		if a.running >= a.w.Commits {
			return
		}
		j := a.next(at)
		if j != nil {
			a.attempt(j, at)
			continue
		}
		if !a.close(at) {
			break
		}
	}
	a.wake(at)
}

// take puts messages into the window, as many as may be held.
func (a *aggregator) take(at time.Duration) {
	n := min(len(a.bus), a.w.windowMessages-len(a.window), heldMessages-a.held)
	if n <= 0 {
		return
	}
	if len(a.window) == 0 {
		a.opened = at
	}
	a.window = append(a.window, a.bus[:n]...)
	a.bus = slices.Delete(a.bus, 0, n)
	a.held += n
}

// windowMessages and heldMessages are the aggregator's defaults.
const (
	windowMessages = 10_000
	windowCounters = 100_000
	heldMessages   = 2 * windowMessages
)

func (a *aggregator) next(at time.Duration) *job {
	for i, j := range a.jobs {
		if !j.waits && j.after <= at {
			a.jobs = slices.Delete(a.jobs, i, i+1)
			return j
		}
	}
	return nil
}

// close cuts the window into jobs if it is due. Aborted jobs that wait go with them
// if there is room.
func (a *aggregator) close(at time.Duration) bool {
	full := len(a.window) >= a.w.windowMessages
	blocked := slices.ContainsFunc(a.jobs, func(j *job) bool { return j.waits })
	if len(a.window) == 0 || !full && (blocked || at < a.opened+a.linger.window()) {
		return false
	}
	jobs := a.w.cut(a.window, a.random)
	a.jobs = slices.DeleteFunc(a.jobs, func(old *job) bool {
		return old.attempts > 0 && !old.stubborn() && slices.ContainsFunc(jobs, func(j *job) bool { return j.merge(old, a.w.Entities) })
	})
	a.jobs = append(a.jobs, jobs...)
	a.window = nil
	return true
}

// merge takes what another job has, if both fit into one commit.
func (j *job) merge(old *job, limit int) bool {
	if j.parts+old.parts+max(len(j.adds), len(old.adds)) > limit {
		return false
	}
	union := make([]add, 0, len(j.adds)+len(old.adds))
	for a, b := j.adds, old.adds; len(a)+len(b) > 0; {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].counter < b[0].counter:
			union, a = append(union, a[0]), a[1:]
		case len(a) == 0 || a[0].counter > b[0].counter:
			union, b = append(union, b[0]), b[1:]
		default:
			union, a, b = append(union, a[0]), a[1:], b[1:]
		}
	}
	if j.parts+old.parts+len(union) > limit {
		return false
	}
	j.parts, j.adds, j.lots = j.parts+old.parts, union, append(j.lots, old.lots...)
	j.waited = j.waited || old.waited
	return true
}

// patience is how often a job that is aborted stays whole.
const patience = 4

// stubborn reports whether a job writes more shards than are ever free together, as it seems.
// With one counter halves would only be more commits to the shards that have too many.
func (j *job) stubborn() bool { return j.attempts >= patience && len(j.adds) > 1 }

// halve splits a job in two.
func (j *job) halve(g groups) []*job {
	if j.parts < 2 {
		return []*job{j}
	}
	a, b := *j, *j
	a.parts, b.parts = j.parts/2, j.parts-j.parts/2
	a.adds, b.adds = g.halve(j.adds)
	a.lots, b.lots = nil, nil
	for _, l := range j.lots {
		l.weight /= 2
		l.of.jobs++
		a.lots, b.lots = append(a.lots, l), append(b.lots, l)
	}
	return []*job{&a, &b}
}

// wake plans the next look at what becomes due by itself.
func (a *aggregator) wake(at time.Duration) {
	soonest := time.Duration(-1)
	sooner := func(t time.Duration) {
		if t > at && (soonest < 0 || t < soonest) {
			soonest = t
		}
	}
	if len(a.window) > 0 {
		sooner(a.opened + a.linger.window())
	}
	for _, j := range a.jobs {
		if !j.waits {
			sooner(j.after)
		}
	}
	if soonest < 0 || a.timer > at && a.timer <= soonest {
		return
	}
	a.timer = soonest
	a.w.events.plan(soonest, a.launch)
}

// attempt tries a job once.
func (a *aggregator) attempt(j *job, at time.Duration) {
	now := a.w.time(at)
	for i := range j.adds {
		d := &j.adds[i]
		if a.shards[d.counter] == 0 || j.attempts > 0 || a.read != nil && at >= a.read[d.counter]+a.w.Reread {
			a.look(d.counter, at)
		}
		d.n = int32(a.shards[d.counter])
		shard, ok := a.chooser.Pick(a.w.names[d.counter], int(d.n), now)
		if !ok {
			for k := range j.adds[:i] {
				a.done(&j.adds[k], shards.End{}, at)
			}
			j.waits = a.running > 0
			j.waited = true
			if !j.waits {
				panic("a shard is under way that no commit has")
			}
			a.jobs = append(a.jobs, j)
			return
		}
		d.shard = int32(shard)
	}
	entities := j.parts + len(j.adds)
	took, ok := a.w.store.commit(j.adds, entities, at)
	a.running++
	a.w.events.plan(at+took, func(at time.Duration) { a.settle(j, entities, took, ok, at) })
}

// look reads a counter's record.
func (a *aggregator) look(counter int32, at time.Duration) {
	a.w.figures.reads++
	a.shards[counter] = uint16(a.w.store.records[counter].shards)
	if a.read != nil {
		a.read[counter] = at
	}
}

// settle is the store's answer.
func (a *aggregator) settle(j *job, entities int, took time.Duration, ok bool, at time.Duration) {
	a.running--
	if d, is := a.chooser.(*doubling); is {
		var counters []string
		for i := range j.adds {
			counters = append(counters, a.w.names[j.adds[i].counter])
		}
		d.end(counters, j.attempts > 0)
	}
	for i := range j.adds {
		d := &j.adds[i]
		end := shards.End{Took: took, OK: ok, Contended: !ok}
		if ok {
			end.Tally = d.tally
			a.hear(int(d.counter), int(d.known))
		}
		a.done(d, end, at)
	}
	for _, other := range a.jobs {
		other.waits = false
	}
	a.w.figures.attempt(at, ok, entities)
	if !ok {
		j.attempts++
	}
	a.linger.ended(ok, j.attempts)
	if ok {
		a.w.figures.applied(at, j, a.random)
		for i := range j.lots {
			if of := j.lots[i].of; of.jobs == 1 {
				a.held -= of.messages
			} else {
				of.jobs--
			}
		}
	} else {
		ceiling := min(50*time.Millisecond<<min(j.attempts, 12), 30*time.Second)
		j.after = at + time.Duration(a.random.Int64N(int64(ceiling))) + time.Millisecond
		if j.stubborn() {
			a.jobs = append(a.jobs, j.halve(a.w.groups())...)
		} else {
			a.jobs = append(a.jobs, j)
		}
	}
	a.launch(at)
}

// hear takes up how many shards a shard reports. The aggregator reads the record before it goes by more shards.
func (a *aggregator) hear(counter, n int) {
	if a.w.Gap == 0 && n > int(a.shards[counter]) {
		a.w.figures.reads++
		a.learn(counter, n)
	}
}

func (a *aggregator) learn(counter, n int) {
	a.shards[counter] = max(a.shards[counter], uint16(n))
}

// done reports to the chooser, and grows the counter if the chooser asks for it.
func (a *aggregator) done(d *add, end shards.End, at time.Duration) {
	n := int(a.shards[d.counter])
	want := a.chooser.Done(a.w.names[d.counter], int(d.shard), n, end, a.w.time(at))
	if want <= n {
		return
	}
	counter := int(d.counter)
	a.w.figures.reads++
	names, ok := a.w.store.raise(counter, want, at)
	if !ok {
		a.learn(counter, names)
		return
	}
	a.w.figures.raised(at, counter, names)
	a.w.events.plan(at+a.w.Store.Latency, func(time.Duration) { a.learn(counter, names) })
}
