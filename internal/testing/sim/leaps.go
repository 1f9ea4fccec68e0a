package sim

import (
	"slices"
	"time"

	"github.com/countmill/countmill/store"
)

// mostStep bounds how far the store's clock moves from its beginning. Together with the steps of a
// process's own clock this stays within the two hours that markers outlive the window.
const mostStep = 20 * time.Minute

// longestFreeze is how long a call may be frozen on its way to the store: with what clocks are
// set by it stays far within the two hours that markers outlive the window.
const longestFreeze = 25 * time.Minute

// stepStore sets the store's clock a little or some minutes forward or back. Many little steps are a
// clock that drifts.
func (w *World) stepStore() bool {
	far := []time.Duration{50 * time.Millisecond, 3 * time.Second, 10 * time.Minute}[w.rng.IntN(3)]
	by := (time.Duration(w.rng.Int64N(int64(2*far))) - far).Truncate(time.Microsecond)
	if (w.stepped + by).Abs() > mostStep {
		return false
	}
	w.stepped += by
	w.setClocks(func() {
		w.storeSkew += by
		for _, p := range w.procs.all {
			p.doubt += by.Abs()
			p.rdrClock.sets(by)
			p.aggClock.sets(by)
		}
	})
	w.steps = append(w.steps, storeStep{w.wall().Truncate(time.Microsecond), w.storeSkew})
	w.doubtAsked()
	w.say(nil, "the store's clock is set %s", by)
	w.db.forget()
	return true
}

// doubtAsked notes for the open requests how far their processes may be wrong now.
func (w *World) doubtAsked() {
	for o := range w.callers.asked {
		o.doubt = max(o.doubt, o.p.doubt)
	}
}

// passUntil lets time pass until the oldest of messages is so much older than the window.
func (w *World) passUntil(messages []*busMessage, beyond time.Duration) bool {
	l := w.bus.oldest(messages)
	if l == nil {
		return false
	}
	far := w.bus.lasts(l, beyond)
	if far > 0 {
		w.pass(far)
	}
	return far > 0
}

// nearWindow lets the oldest message wait until shortly before it is beyond the window: new
// messages are much younger.
func (w *World) nearWindow() bool {
	if l := w.bus.oldest(w.bus.done); l == nil || w.bus.lasts(l, 0) < soonOver {
		return false
	}
	return w.passUntil(w.bus.done, -[]time.Duration{5 * time.Minute, 30 * time.Minute}[w.rng.IntN(2)])
}

// passDay lets about a day pass, after which deleted counters are swept, often at once.
func (w *World) passDay() bool {
	w.pass(store.SweepAfter + []time.Duration{-10 * time.Minute, time.Minute, time.Minute, time.Hour}[w.rng.IntN(4)])
	if w.rng.IntN(3) > 0 && w.db.sweep() {
		w.hit(Swept)
	}
	for range 3 { // the data of a lone process go after some rounds
		if w.embedded && w.rng.IntN(3) > 0 {
			w.pass(store.SweepEvery + time.Second)
			w.db.sweep()
		}
	}
	return true
}

// passWindow lets about as much time pass as ids are remembered for, or were by a window
// before, or as it takes until a longer window has an effect: to just before they are
// forgotten, to just after, and to when nobody's clock doubts it.
func (w *World) passWindow() bool {
	w.pass(pick(w.rng, append(slices.Clone(w.windows), store.ChangeSlack)) + []time.Duration{-5 * time.Minute, 2*time.Hour + 5*time.Minute, 3 * time.Hour}[w.rng.IntN(3)])
	return true
}

// suspend suspends all machines for some minutes. Calls to the store reach it afterwards, but no call
// is frozen twice.
func (w *World) suspend() {
	longest := longestFreeze
	if w.pages != nil && !w.embedded {
		longest = store.MaxTransaction
	}
	w.suspendFor(time.Minute + time.Duration(w.rng.Int64N(int64(longest-time.Minute))))
}

func (w *World) suspendFor(far time.Duration) {
	for _, s := range w.pending {
		if s.limited() {
			if s.frozen {
				w.cutOff(s)
			}
			s.frozen = true
		}
	}
	w.jump(far)
}

// pass lets so much time pass at once. Calls that are under way come to nothing, or came to
// something before; some have their answer, which is read afterwards.
func (w *World) pass(far time.Duration) {
	for _, s := range w.pending {
		switch {
		case !s.limited():
		case !s.slow && s.ctx.Err() == nil && w.strikes(AnswerWaits):
			s.run(released)
			s.run = func(callEnd) {}
		default:
			w.cutOff(s)
		}
	}
	w.jump(far)
}

func (w *World) cutOff(s *step) {
	s.run(ended)
	s.run, s.slow = func(callEnd) {}, true
}

// jump lets time pass that only wall clocks see. Late calls arrive before, unless the journal is read meanwhile.
func (w *World) jump(far time.Duration) {
	if w.pages == nil || w.embedded || far > store.MaxTransaction || w.rng.IntN(2) == 0 { // or a commit comes just in time
		for _, late := range w.delayed {
			_ = late()
		}
		w.delayed = nil
	}
	for _, d := range w.bus.held { // nobody extended their leases
		if !w.embedded && w.rng.IntN(2) == 0 {
			w.bus.requeue(d.message)
		}
	}
	for _, l := range slices.Clone(w.bus.done) {
		if w.strikes(AckForgotten) {
			w.bus.repeat(l)
		}
	}
	w.setClocks(func() {
		w.jumped += far
		for _, p := range w.procs.all {
			p.suspended(far)
		}
	})
	w.say(nil, "-- %s pass at once", far)
	w.db.forget()
}

// limited reports whether the step is a call that has a deadline.
func (s *step) limited() bool {
	if s.ctx == nil || s.run == nil {
		return false
	}
	_, limited := s.ctx.Deadline()
	return limited
}

// setClock sets the clock of a process.
func (w *World) setClock() bool {
	all := w.procs.everybody()
	if len(all) == 0 {
		return false
	}
	p := pick(w.rng, all)
	if time.Since(p.set) < time.Minute {
		return false
	}
	to := p.skew + w.drawSkew(client)
	p.set = time.Now()
	w.setClocks(func() {
		if back := p.skew - to; back > 0 {
			p.wasSetBack(back)
		} else {
			p.setBack = max(0, p.setBack+back)
		}
		p.rdrClock.sets(to - p.skew)
		p.aggClock.sets(to - p.skew)
		p.skew = to
	})
	w.doubtAsked()
	w.say(p, "its clock is %s off from now on", p.skew)
	return true
}
