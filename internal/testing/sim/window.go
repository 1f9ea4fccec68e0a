package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
)

// windows are the deduplication windows that the database may have.
var windows = []time.Duration{time.Hour, 3 * time.Hour, 24 * time.Hour, 8 * 24 * time.Hour}

// ofWindows are the events that make a change of the window dangerous together.
var ofWindows = []Fault{WindowLonger, WindowShorter, PastWindow, AckForgotten}

// drawWindows draws the first one. In some schedules the window changes, time passes at once, and
// parts come again.
func (pl *plan) drawWindows() {
	rng := rand.New(rand.NewPCG(pl.seed, 0x77696e646f77))
	pl.window1 = windows[rng.IntN(len(windows))]
	if rng.IntN(3) > 0 {
		return
	}
	for _, f := range ofWindows {
		pl.rates[f] = 0.5
	}
	pl.changing = true
	pl.rates[AnswerWaits] = 0.8
	for _, f := range []Fault{Suspended, PublishTwice} {
		if rng.IntN(4) > 0 {
			pl.rates[f] = 0.5
		}
	}
}

// trusted returns how old an increment's time may be for a publisher. Its setting may be longer than
// the database's window. A node uses that window.
func (ps *processes) trusted(p *proc) func() time.Duration {
	set := ps.window()
	if p.n%2 == 0 {
		set = windows[len(windows)-1]
	}
	return func() time.Duration {
		if p.agg != nil {
			return cmp.Or(p.agg.Settings().Window, set)
		}
		return set
	}
}

// changeWindow sets the database's window, as a process does that starts with another one.
func (db *database) changeWindow(longer bool) bool {
	others := slices.DeleteFunc(slices.Clone(windows), func(d time.Duration) bool {
		return d == db.window() || d > db.window() != longer
	})
	if len(others) == 0 {
		return false
	}
	to := pick(db.rng, others)
	set, err := db.fake.SetWindow(background, to)
	if err != nil {
		db.violate("the window was not set: %v", err)
	}
	db.windows = append(db.windows, to)
	db.trace("window", nil, "", uint64(to))
	db.say(nil, "the window is %s from now on, nothing of before %s counts", to, set.ForgetBefore.Format(clockFormat))
	db.forget()
	return true
}

// noteSettings counts the folds with markers that begin by settings which were changed since.
func (db *database) noteSettings(p *proc, c *store.Commit) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if len(c.Markers) > 0 && p.goesBy < int64(len(db.windows)) {
		db.Outdated++
	}
}

// passWindow lets about as much time pass as ids are remembered for, or were by a window
// before, or as it takes until a longer window has an effect: to just before they are
// forgotten, to just after, and to when nobody's clock doubts it.
func (w *World) passWindow() {
	w.pass(pick(w.rng, append(slices.Clone(w.windows), store.ChangeSlack)) + []time.Duration{-5 * time.Minute, 2*time.Hour + 5*time.Minute, 3 * time.Hour}[w.rng.IntN(3)])
}

// longestFreeze is how long a call may be frozen on its way to the store: with what clocks are
// set by it stays far within the two hours that markers outlive the window.
const longestFreeze = 25 * time.Minute

// suspend suspends all machines for some minutes. Calls to the store reach it afterwards, but no call
// is frozen twice.
func (w *World) suspend() {
	for _, s := range w.pending {
		if s.limited() {
			if s.frozen {
				w.cutOff(s)
			}
			s.frozen = true
			w.Outlasted++
		}
	}
	w.jump(time.Minute + time.Duration(w.rng.Int64N(int64(longestFreeze-time.Minute))))
}

// pass lets so much time pass at once. Calls that are under way come to nothing, or came to
// something before; some have their answer, which is read afterwards.
func (w *World) pass(far time.Duration) {
	for _, s := range w.pending {
		switch {
		case !s.limited():
		case !s.slow && s.ctx.Err() == nil && w.strikes(AnswerWaits):
			s.run(released)
			s.run = func(fate) {}
			w.Outlasted++
		default:
			w.cutOff(s)
		}
	}
	w.jump(far)
}

// limited reports whether the step is a call that has a deadline.
func (s *step) limited() bool {
	if s.ctx == nil || s.run == nil {
		return false
	}
	_, limited := s.ctx.Deadline()
	return limited
}

func (w *World) cutOff(s *step) {
	s.run(ended)
	s.run, s.slow = func(fate) {}, true
}

// jump lets time pass that only wall clocks see. Late calls arrive before.
func (w *World) jump(far time.Duration) {
	for _, ghost := range w.ghosts {
		_ = ghost()
	}
	w.ghosts = nil
	for _, d := range w.bus.held { // nobody extended their leases
		if !w.embedded && w.rng.IntN(2) == 0 {
			w.bus.requeue(d.parcel)
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
