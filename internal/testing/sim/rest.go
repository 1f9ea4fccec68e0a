package sim

import (
	"slices"
	"strings"
	"time"
)

// A stage of the end of a schedule, when nothing breaks any more.
type stage int

const (
	storm stage = iota
	answers
	closing
	folding
	lastResets
	lastReads
	idling
)

// drainOne stops a process in good order.
func (w *World) drainOne(f Fault) bool {
	r := aggregating
	if f == DrainPublisher {
		r = publishing
	}
	lives := w.procs.lives(r)
	if len(lives) == 0 {
		return false
	}
	p := pick(w.rng, lives)
	if p.role.has(publishing) {
		if p.pubClosed {
			return false
		}
		w.clients.closePublisher(p)
		return true
	}
	w.procs.stop(p)
	return true
}

// stop asks an aggregator to stop.
func (ps *processes) stop(p *proc) {
	ps.trace("stop", p, "", 0)
	ps.say(p, "is told to stop")
	p.leaving = true
	p.stop()
}

// endPublishers ends all publishers whose Close ran out of time, as they still publish. Others may
// have replaced them.
func (ps *processes) endPublishers() {
	for _, p := range ps.all {
		if p.role == publishing && p.cutShort && !p.dead {
			ps.kill(p)
		}
	}
}

// supervise starts what has stopped again, as whoever runs processes does.
func (ps *processes) supervise() (acted bool) {
	for r := range ps.alive {
		for slot, p := range ps.alive[r] {
			ps.mu.Lock()
			left, fell := p.left, p.fell
			ps.mu.Unlock()
			switch {
			case p.dead:
			case fell:
				if !p.unsure {
					ps.violate("%s ended by itself, and the outcome of no fold was unknown to it", p.name)
				}
				ps.kill(p)
			case left, p.role == publishing && p.pubClosed && !ps.ending:
				if p.role == node {
					ps.kill(p) // what is left of it
				}
			default:
				continue
			}
			ps.start(role(r), slot, false)
			acted = true
		}
	}
	return acted
}

// halted reports whether an aggregator has stopped folding for good.
func (p *proc) halted() bool {
	if p.agg == nil || p.dead || p.leaving {
		return false
	}
	err := p.agg.Ready()
	return err != nil && strings.Contains(err.Error(), "folding has stopped")
}

// restartHalted ends aggregators that have stopped folding for good: somebody has to start them again.
func (ps *processes) restartHalted() {
	for _, p := range ps.lives(aggregating) {
		if p.halted() {
			ps.kill(p)
		}
	}
}

// clearUp lets nothing break any more and waits until all has come to rest.
func (w *World) clearUp() {
	switch w.stage {
	case storm:
		w.stormy, w.db.swapped = false, false
		for _, p := range w.procs.all {
			p.frozen = false
		}
		w.trace("calm", nil, "", 0)
		w.say(nil, "== from here on nothing breaks")
		if w.rates[Image] > 0 && w.procs.restoreOne(aggregating) { // the last one: what it holds for ever shows
			w.hit(Image)
		}
		w.procs.upgrade()
		for range 3 { // somebody looks after what is left
			for _, f := range []Fault{ReplayAsked, AskedAsNew, LetterDiscarded} {
				if w.rates[f] > 0 && w.happen(f) {
					w.hit(f)
				}
			}
		}
		w.stage = answers
	case answers:
		if w.race.compete() && len(w.callers.asked) == 0 && len(w.clients.again) == 0 {
			for _, p := range w.procs.publishers() {
				w.clients.closePublisher(p)
			}
			w.stage, w.procs.ending = closing, true
		}
	case closing:
		if len(w.callers.asked) == 0 {
			w.procs.endPublishers()
			w.stage, w.readers.final = folding, true
		}
	case folding:
		w.procs.restartHalted()
		switch {
		case len(w.bus.queue)+len(w.bus.held)+len(w.ghosts) > 0 || w.db.lettersWait():
		case w.oracles.inProcess():
			w.forgetLetters()
		default:
			w.oracles.ledger.check()
			if w.shape.operator {
				w.operator.unreset = slices.Clone(counters[:2+w.shape.counters])
			}
			w.stage = lastResets
		}
	case lastResets:
		if w.operator.resetLast() {
			w.readers.readLast()
			w.stage = lastReads
		}
	case lastReads:
		if len(w.callers.asked) > 0 {
			break
		}
		if w.Calls >= leastCalls {
			w.stage, w.idle.since = idling, time.Now()
			break
		}
		w.readers.readLast()
	case idling:
		if w.done = w.idle.check(); w.done {
			return
		}
	}
	w.settle()
	w.move()
}

// forgetLetters starts all aggregators again, so that they forget the letters that they have read.
func (w *World) forgetLetters() {
	w.oracles.gone = nil
	for _, p := range w.procs.lives(aggregating) {
		w.procs.kill(p)
		w.procs.start(p.role, p.slot, false)
	}
}

// leave ends all that still runs.
func (w *World) leave() {
	for _, p := range w.procs.all {
		if !p.dead {
			w.procs.kill(p)
		}
	}
	w.procs.kill(w.callers.self)
	w.running.Wait()
}
