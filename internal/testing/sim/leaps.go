package sim

import (
	"slices"
	"time"

	"github.com/countmill/countmill/store"
)

// Leaps let much time pass at once, or set the store's clock.
type leaps struct {
	*kernel
	bus     *broker
	db      *database
	procs   *processes
	callers *callers
}

// mostStep bounds how far the store's clock moves from its beginning. Together with the steps of a
// process's own clock this stays within the two hours that markers outlive the window.
const mostStep = 20 * time.Minute

// longestFreeze is how long a call may be frozen on its way to the store: with what clocks are
// set by it stays far within the two hours that markers outlive the window.
const longestFreeze = 25 * time.Minute

// stepStore sets the store's clock a little or some minutes forward or back. Many little steps are a
// clock that drifts.
func (lp *leaps) stepStore() bool {
	far := []time.Duration{50 * time.Millisecond, 3 * time.Second, 10 * time.Minute}[lp.rng.IntN(3)]
	by := (time.Duration(lp.rng.Int64N(int64(2*far))) - far).Truncate(time.Microsecond)
	if (lp.stepped + by).Abs() > mostStep {
		return false
	}
	lp.stepped += by
	lp.setClocks(func() {
		lp.storeSkew += by
		for _, p := range lp.procs.all {
			p.doubt += by.Abs()
			p.rdrClock.sets(by)
			p.aggClock.sets(by)
		}
	})
	lp.steps = append(lp.steps, storeStep{lp.wall().Truncate(time.Microsecond), lp.storeSkew})
	lp.doubtAsked()
	lp.say(nil, "the store's clock is set %s", by)
	lp.db.forget()
	return true
}

// doubtAsked notes for the open requests how far their processes may be wrong now.
func (lp *leaps) doubtAsked() {
	for o := range lp.callers.asked {
		o.doubt = max(o.doubt, o.p.doubt)
	}
}

// passUntil lets time pass until the oldest of messages is so much older than the window.
func (lp *leaps) passUntil(messages []*busMessage, beyond time.Duration) bool {
	l := lp.bus.oldest(messages)
	if l == nil {
		return false
	}
	far := lp.bus.lasts(l, beyond)
	if far > 0 {
		lp.pass(far)
	}
	return far > 0
}

// nearWindow lets the oldest message wait until shortly before it is beyond the window: new
// messages are much younger.
func (lp *leaps) nearWindow() bool {
	if l := lp.bus.oldest(lp.bus.done); l == nil || lp.bus.lasts(l, 0) < soonOver {
		return false
	}
	return lp.passUntil(lp.bus.done, -[]time.Duration{5 * time.Minute, 30 * time.Minute}[lp.rng.IntN(2)])
}

// passDay lets about a day pass, after which deleted counters are swept, often at once.
func (lp *leaps) passDay() bool {
	lp.pass(store.SweepAfter + []time.Duration{-10 * time.Minute, time.Minute, time.Minute, time.Hour}[lp.rng.IntN(4)])
	if lp.rng.IntN(3) > 0 && lp.db.sweep() {
		lp.hit(Swept)
	}
	for range 3 { // the data of a lone process go after some rounds
		if lp.embedded && lp.rng.IntN(3) > 0 {
			lp.pass(store.SweepEvery + time.Second)
			lp.db.sweep()
		}
	}
	return true
}

// passWindow lets about as much time pass as ids are remembered for, or were by a window
// before, or as it takes until a longer window has an effect: to just before they are
// forgotten, to just after, and to when nobody's clock doubts it.
func (lp *leaps) passWindow() bool {
	lp.pass(pick(lp.rng, append(slices.Clone(lp.windows), store.ChangeSlack)) + []time.Duration{-5 * time.Minute, 2*time.Hour + 5*time.Minute, 3 * time.Hour}[lp.rng.IntN(3)])
	return true
}

// suspend suspends all machines for some minutes. Calls to the store reach it afterwards, but no call
// is frozen twice.
func (lp *leaps) suspend() {
	longest := longestFreeze
	if lp.pages != nil && !lp.embedded {
		longest = store.MaxTransaction
	}
	lp.suspendFor(time.Minute + time.Duration(lp.rng.Int64N(int64(longest-time.Minute))))
}

func (lp *leaps) suspendFor(far time.Duration) {
	for _, s := range lp.pending {
		if s.limited() {
			if s.frozen {
				lp.cutOff(s)
			}
			s.frozen = true
			lp.Outlasted++
		}
	}
	lp.jump(far)
}

// pass lets so much time pass at once. Calls that are under way come to nothing, or came to
// something before; some have their answer, which is read afterwards.
func (lp *leaps) pass(far time.Duration) {
	for _, s := range lp.pending {
		switch {
		case !s.limited():
		case !s.slow && s.ctx.Err() == nil && lp.strikes(AnswerWaits):
			s.run(released)
			s.run = func(callEnd) {}
			lp.Outlasted++
		default:
			lp.cutOff(s)
		}
	}
	lp.jump(far)
}

func (lp *leaps) cutOff(s *step) {
	s.run(ended)
	s.run, s.slow = func(callEnd) {}, true
}

// jump lets time pass that only wall clocks see. Late calls arrive before, unless the journal is read meanwhile.
func (lp *leaps) jump(far time.Duration) {
	if lp.pages == nil || lp.embedded || far > store.MaxTransaction || lp.rng.IntN(2) == 0 { // or a commit comes just in time
		for _, late := range lp.delayed {
			_ = late()
		}
		lp.delayed = nil
	}
	for _, d := range lp.bus.held { // nobody extended their leases
		if !lp.embedded && lp.rng.IntN(2) == 0 {
			lp.bus.requeue(d.message)
		}
	}
	for _, l := range slices.Clone(lp.bus.done) {
		if lp.strikes(AckForgotten) {
			lp.bus.repeat(l)
		}
	}
	lp.setClocks(func() {
		lp.jumped += far
		for _, p := range lp.procs.all {
			p.suspended(far)
		}
	})
	lp.say(nil, "-- %s pass at once", far)
	lp.db.forget()
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
func (lp *leaps) setClock() bool {
	all := lp.procs.everybody()
	if len(all) == 0 {
		return false
	}
	p := pick(lp.rng, all)
	if time.Since(p.set) < time.Minute {
		return false
	}
	to := p.skew + lp.drawSkew(client)
	p.set = time.Now()
	lp.setClocks(func() {
		if back := p.skew - to; back > 0 {
			p.wasSetBack(back)
		} else {
			p.setBack = max(0, p.setBack+back)
		}
		p.rdrClock.sets(to - p.skew)
		p.aggClock.sets(to - p.skew)
		p.skew = to
	})
	lp.doubtAsked()
	lp.say(p, "its clock is %s off from now on", p.skew)
	return true
}
