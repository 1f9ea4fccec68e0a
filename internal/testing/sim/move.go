package sim

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store"
)

// move does one thing that can happen now: lets a step go, delivers a message, lets what
// is on its way arrive, lets time pass, or lets something break.
func (w *World) move() {
	if w.stormy && w.rng.Float64() < w.shape.eventRate {
		w.event()
		return
	}
	var steps []*step
	for _, s := range w.pending {
		if s.ready() {
			steps = append(steps, s)
		}
	}
	open := w.bus.open()
	deliveries := min(len(open)*len(w.bus.queue), 3)
	choices := len(steps) + deliveries + len(w.ghosts)
	again := len(w.clients.again) > 0 && w.rng.IntN(4) == 0
	if choices == 0 && !again || w.rng.Float64() < w.haste() {
		w.advance()
		return
	}
	if again && w.clients.repeat() || choices == 0 {
		return
	}
	switch i := w.rng.IntN(choices); {
	case i < len(steps):
		w.turn(steps[i])
	case i < len(steps)+deliveries:
		w.bus.offer(pick(w.rng, open))
	default:
		i -= len(steps) + deliveries
		ghost := w.ghosts[i]
		w.ghosts = slices.Delete(w.ghosts, i, i+1)
		w.trace("arrives", nil, "", 0)
		w.say(nil, "what was still on its way arrives")
		_ = ghost()
	}
}

// haste is how likely time passes although something could be done. When nothing breaks any
// more the calls are answered soon, or some schedules would not come to rest in any time.
func (w *World) haste() float64 {
	if w.race.racing() {
		return 0
	}
	if w.stormy {
		return w.shape.advanceRate
	}
	return min(w.shape.advanceRate, 0.05)
}

// turn lets a step go, or decides that it will not be answered in time.
func (w *World) turn(s *step) {
	if slow, ok := map[string]Fault{"fold": FoldSlow, "check": CheckHangs}[s.op]; ok && !s.slow && s.ctx.Err() == nil && w.strikes(slow) {
		s.slow = true
		w.say(s.p, "its %s will not be answered in time", s.op)
		return
	}
	for _, sub := range w.bus.subscriptions {
		sub.idle = false
	}
	w.suspendOld(s)
	if slices.Contains(w.pending, s) {
		w.release(s)
	}
}

// advance lets time pass. What is due then happens then, each at its time.
func (w *World) advance() {
	d := []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}[w.rng.IntN(5)]
	if w.race.racing() {
		d = 10 * time.Millisecond
	}
	d += time.Duration(w.rng.IntN(1000)) * time.Microsecond
	w.trace("time", nil, "", uint64(d))
	w.say(nil, "-- %s pass", d)
	<-time.After(d)
	synctest.Wait()
	for _, sub := range w.bus.subscriptions {
		sub.idle = false
	}
	w.db.forget()
}

// event lets something break that breaks by itself.
func (w *World) event() {
	var enabled []Fault
	for f := firstEvent; f < faultCount; f++ {
		if w.rates[f] > 0 {
			enabled = append(enabled, f)
		}
	}
	if len(enabled) == 0 {
		return
	}
	if w.changing && w.rng.IntN(2) == 0 {
		enabled = ofWindows
	}
	f := pick(w.rng, enabled)
	if w.rates[NearWindow] > w.rng.Float64() {
		f = NearWindow
	}
	if w.happen(f) {
		w.hit(f)
	}
}

func (w *World) happen(f Fault) bool {
	switch f {
	case StoreAway, BusAway:
		w.until[f] = time.Now().Add([]time.Duration{time.Second, 20 * time.Second, time.Minute}[w.rng.IntN(3)])
		return true
	case Swapped:
		w.db.swapped = !w.db.swapped
		for _, p := range w.procs.lives(reading) {
			w.readers.probe(p)
		}
		return true
	case KillPublisher, KillAggregator, KillReader:
		return w.procs.killOne(map[Fault]role{KillPublisher: publishing, KillAggregator: aggregating, KillReader: reading}[f])
	case TwoVersions:
		w.changeVersion() // it is hit when another version starts
	case Drain, DrainPublisher:
		return w.drainOne(f)
	case Image:
		return w.procs.restoreOne([]role{publishing, aggregating, aggregating, reading}[w.rng.IntN(4)])
	case Freeze:
		return w.procs.freezeOne()
	case ClockJumps:
		if all := w.procs.everybody(); len(all) > 0 {
			p := pick(w.rng, all)
			if time.Since(p.set) < time.Minute {
				return false
			}
			to := p.skew + w.drawSkew(client)
			p.set = time.Now()
			w.setClocks(func() {
				p.setBack = max(0, p.setBack+p.skew-to)
				p.rdrClock.sets(to - p.skew)
				p.aggClock.sets(to - p.skew)
				p.skew = to
			})
			w.say(p, "its clock is %s off from now on", p.skew)
			return true
		}
	case StoreClockJumps:
		return w.leaps.stepStore()
	case PastWindow:
		w.leaps.passWindow()
		return true
	case Suspended:
		w.leaps.suspend()
		return true
	case WindowLonger, WindowShorter:
		return w.db.changeWindow(f == WindowLonger)
	case NearWindow:
		return w.leaps.nearWindow()
	case DayPasses:
		w.leaps.passDay()
		return true
	case Swept:
		return w.db.sweep()
	case Redelivered:
		if len(w.bus.held) > 0 && !w.embedded {
			l := pick(w.rng, w.bus.held).parcel
			w.say(nil, "message %d is to be delivered again", l.n)
			w.bus.requeue(l)
			return true
		}
	case AckForgotten:
		if len(w.bus.done) > 0 {
			w.bus.repeat(pick(w.rng, w.bus.done))
			return true
		}
	case GivenUp:
		return w.giveUp()
	case ReplayAsked:
		if w.rng.IntN(2) == 0 {
			return w.operator.lookAfter(replayOp)
		}
		return w.operator.askReplay()
	case UnreadableAsked:
		return w.operator.askUnreadable()
	case AskedAsNew:
		return w.operator.lookAfter(asNewOp)
	case LetterDiscarded:
		return w.operator.lookAfter(discardOp)
	case StreamEnds:
		if open := w.bus.open(); len(open) > 0 {
			w.bus.end(pick(w.rng, open))
			return true
		}
	case ShardsRaised:
		_ = w.db.fake.Grow(background, []store.Growth{{Counter: pick(w.rng, counters), Shards: 1 + w.rng.IntN(8)}})
		return true
	}
	return false
}

// everybody is all processes that run.
func (ps *processes) everybody() []*proc {
	var all []*proc
	for _, p := range ps.all {
		if !p.dead {
			all = append(all, p)
		}
	}
	return all
}

func (ps *processes) killOne(r role) bool {
	lives := ps.lives(r)
	if len(lives) == 0 {
		return false
	}
	p := pick(ps.rng, lives)
	ps.kill(p)
	ps.start(p.role, p.slot, false)
	return true
}

// restoreOne replaces a process by one that begins with the same random numbers. What was
// delivered to it first comes again, so that the same numbers meet the same message.
func (ps *processes) restoreOne(r role) bool {
	lives := ps.lives(r)
	if len(lives) == 0 {
		return false
	}
	p := pick(ps.rng, lives)
	ps.kill(p)
	if l := p.first; l != nil && l.settled == nil {
		l.acked = false
		ps.bus.requeue(l)
	}
	ps.start(p.role, p.slot, true)
	return true
}

// freezeOne stops a process, or lets all that are stopped go on.
func (ps *processes) freezeOne() bool {
	all := ps.everybody()
	p := pick(ps.rng, all)
	p.frozen = !p.frozen
	ps.trace("freeze", p, "", 0)
	ps.say(p, "frozen: %t", p.frozen)
	return true
}

// work starts one more thing that clients do.
func (w *World) work() {
	lives := w.procs.publishers()
	if len(lives) == 0 {
		return
	}
	if w.shape.operator && w.rng.IntN(4) == 0 {
		w.operator.operate()
		return
	}
	p := pick(w.rng, lives)
	switch n := w.rng.IntN(20); {
	case n < 5:
		w.clients.add(p)
	case n < 6:
		w.clients.flush(p)
	case n < 9:
		w.clients.offer(p, "publish")
	case n < 12:
		w.clients.offer(p, "ids")
	case n < 15:
		w.clients.offer(p, "key")
	case n < 16:
		w.clients.oddMessage()
	case n < 17:
		w.readers.askPipeline()
	default:
		w.readers.read()
	}
}
