package sim

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// drawAges draws whether a schedule has increments of very different
// ages in process together: events of the past, messages that wait nearly as long as ids are
// remembered, and processes that are suspended while they commit.
func (pl *plan) drawAges() {
	rng := pl.rng
	if rng.IntN(4) > 0 {
		return
	}
	pl.rates[PastEvent] = []float64{0.1, 0.3, 1}[rng.IntN(3)]
	if rng.IntN(4) == 0 {
		return
	}
	if !pl.changing {
		pl.window1 = windows[2+rng.IntN(2)]
	}
	pl.shape.held, pl.shape.windowMessages = max(pl.shape.held, 3), max(pl.shape.windowMessages, 2)
	pl.shape.window = oddly(rng, 100*time.Millisecond)
	pl.shape.works += 10
	pl.shape.minSteps += 100
	pl.shape.eventRate = max(pl.shape.eventRate, 0.05)
	pl.rates[NearWindow], pl.rates[LateCopy], pl.rates[SuspendedOld] = 0.5, 0.7, []float64{0.03, 0.1, 0.3}[rng.IntN(3)]
	for _, f := range []Fault{PublishTwice, AckLost, Redelivered} { // or all but the first copy is gone by then
		if rng.IntN(2) == 0 {
			pl.rates[f] = 0.3
		}
	}
}

// begins is the time of the oldest part in the message, from which its window counts. It is zero
// where the message cannot be read, or will not come twice.
func (l *busMessage) begins() (from time.Time) {
	batch, err := l.decode()
	if err != nil || l.settled != nil {
		return from
	}
	for i := range batch.Parts {
		at := batch.Parts[i].Time
		if at.IsZero() {
			at = batch.Time
		}
		if from.IsZero() || at.Before(from) {
			from = at
		}
	}
	return from
}

// oldest is the one of messages whose oldest part is older than that of all others, but still
// within the window; nil if there is none.
func (b *broker) oldest(messages []*busMessage) (found *busMessage) {
	bound := b.storeNow().Add(-b.window())
	for _, l := range messages {
		if at := l.begins(); at.After(bound) && (found == nil || at.Before(found.begins())) {
			found = l
		}
	}
	return found
}

// lasts is how long it takes until the message is so much older than the window.
func (b *broker) lasts(l *busMessage, beyond time.Duration) time.Duration {
	return l.begins().Add(b.window() + beyond).Sub(b.storeNow())
}

// soonOver is how long a message is within the window at most that is delivered once more
// beside a younger one.
const soonOver = time.Hour

// outlives reports whether the one message is still within the window when no marker is kept
// any more of the other.
func outlives(young, old *busMessage) bool {
	return young.begins().Sub(old.begins()) > markerGone+soonOver
}

// lateCopy lets the oldest message that was acknowledged come once more, as brokers may, to a
// subscriber that has just been given a younger one.
func (b *broker) lateCopy(s *subscription, young *busMessage) {
	l := b.oldest(b.done)
	if l == nil || l.moved != s.moved || b.lasts(l, 0) > soonOver || !outlives(young, l) || !b.strikes(LateCopy) {
		return
	}
	b.repeat(l)
	s.next = l
}

// attempts is the function of the goroutine of an attempt.
const attempts = "aggregator.(*loop).launch"

// suspendOld stops the machine of an aggregator that is about to try a commit, or gets the answer to a look-up before it. When it goes on,
// the marker of the oldest part may be forgotten.
func (w *World) suspendOld(s *step) {
	if w.rates[SuspendedOld] == 0 || s.op != "applied" && s.op != "shards" && !strings.Contains(s.op, attempts) {
		return
	}
	var held []*busMessage
	for _, d := range w.bus.held {
		if d.sub.p == s.p {
			held = append(held, d.message)
		}
	}
	l, rate := w.bus.oldest(held), w.rates[SuspendedOld]
	switch {
	case l == nil || !w.stormy:
		return
	case slices.ContainsFunc(held, func(o *busMessage) bool { return outlives(o, l) }):
		rate = 0.7
	case w.bus.lasts(l, 0) < soonOver:
		rate /= 3 // a younger one may come
	}
	if w.rng.Float64() < rate && w.passUntil(held, markerGone) {
		w.hit(SuspendedOld)
		if w.rng.IntN(2) == 0 {
			w.recheck(s.p)
		}
	}
}

// recheck lets a process read the settings anew at once, before it goes on with anything else.
func (w *World) recheck(p *proc) {
	<-time.After(time.Second + 100*time.Millisecond)
	w.settle()
	for _, s := range w.pending {
		if s.p == p && s.op == "check" && s.ready() {
			w.release(s)
			w.settle()
			return
		}
	}
}

// markerGone is how long after the window no marker is kept any more of a part that was
// committed soon.
const markerGone = 2*time.Hour + 5*time.Minute

// windows are the deduplication windows that the database may have.
var windows = []time.Duration{time.Hour, 3 * time.Hour, 24 * time.Hour, 8 * 24 * time.Hour}

// ofWindows are the events that make a change of the window dangerous together.
var ofWindows = []Fault{WindowLonger, WindowShorter, PastWindow, AckForgotten}

// drawWindows draws the first one. In some schedules the window changes, time passes at once, and
// parts come again.
func (pl *plan) drawWindows() {
	rng := pl.rng
	pl.window1 = windows[rng.IntN(len(windows))]
	if rng.IntN(3) > 0 {
		return
	}
	pl.set(0.5, ofWindows...)
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
