package sim

import (
	"cmp"
	"time"
)

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
