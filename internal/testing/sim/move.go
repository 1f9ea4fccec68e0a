package sim

import (
	"slices"
	"strings"
	"testing/synctest"
	"time"
)

// move does one thing that can happen now: it lets a step go, delivers a message, lets a late
// call arrive, lets time pass, or lets something break.
func (w *World) move() {
	if w.stormy && w.rng.Float64() < w.shape.eventRate {
		w.event()
		return
	}
	steps := w.ready[:0]
	for _, s := range w.pending {
		if s.ready() {
			steps = append(steps, s)
		}
	}
	w.ready = steps
	open := w.bus.open()
	deliveries := min(len(open)*len(w.bus.queue), 3)
	choices := len(steps) + deliveries + len(w.delayed)
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
		if strings.HasPrefix(steps[i].op, "transact ") && w.stormy { // what it has read may change before it ends
			i = w.rng.IntN(len(steps))
		}
		w.turn(steps[i])
	case i < len(steps)+deliveries:
		w.bus.offer(pick(w.rng, open))
	default:
		i -= len(steps) + deliveries
		late := w.delayed[i]
		w.delayed = slices.Delete(w.delayed, i, i+1)
		w.say(nil, "late messages arrive")
		_ = late()
	}
}

// haste is how likely time passes although something could be done. When nothing breaks any
// more the calls are answered soon, or some schedules would not come to rest in any time: a commit without an answer ends an embedded
// process.
func (w *World) haste() float64 {
	switch {
	case w.race.racing(), w.embedded && !w.stormy:
		return 0
	case w.stormy:
		return w.shape.advanceRate
	}
	return min(w.shape.advanceRate, 0.05)
}

var slowCalls = map[string]Fault{"fold": FoldSlow, "check": CheckHangs}

// turn lets a step go, or decides that it will not be answered in time.
func (w *World) turn(s *step) {
	if slow, ok := slowCalls[s.op]; ok && !s.slow && s.ctx.Err() == nil && w.strikes(slow) {
		s.slow = true
		w.say(s.p, "its %s will not be answered in time", s.op)
		return
	}
	if w.stopIndexer(s) || w.suspendFold(s) {
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

// advance lets time pass. Timers that are due fire then, each at its time.
func (w *World) advance() {
	d := []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}[w.rng.IntN(5)]
	if w.race.racing() {
		d = 10 * time.Millisecond
	}
	d += time.Duration(w.rng.IntN(1000)) * time.Microsecond
	w.say(nil, "-- %s pass", d)
	<-time.After(d)
	synctest.Wait()
	for _, sub := range w.bus.subscriptions {
		sub.idle = false
	}
	if d >= time.Second {
		w.db.forget()
	}
	w.moveSeries()
	w.series.look()
	w.groups.look()
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
	if w.pages != nil && w.rng.IntN(4) == 0 {
		w.pagers.read()
		return
	}
	if w.rng.IntN(8) == 0 {
		w.readers.lookAt()
		return
	}
	if w.sequences > 0 && w.rng.IntN(3) == 0 {
		w.sequencers.next()
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
	case w.neighbour != nil && w.rng.IntN(2) == 0:
		w.neighbour.read()
	default:
		w.readers.read()
	}
}
