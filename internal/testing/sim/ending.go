package sim

import (
	"slices"
	"time"
)

// A stage of the end of a schedule, when nothing breaks any more.
type stage int

const (
	storm stage = iota
	answers
	closing
	folding
	lastPages
	lastValues
	lastIndexes
	lastResets
	lastReads
	idling
)

// clearUp lets nothing break any more and waits until all has come to rest.
func (w *World) clearUp() {
	switch w.stage {
	case storm:
		w.calmDown()
	case answers:
		w.awaitAnswers()
	case closing:
		if len(w.callers.asked) == 0 {
			w.procs.endPublishers()
			w.stage, w.readers.final = folding, true
		}
	case folding:
		w.awaitFolds()
	case lastPages:
		w.next(w.pages == nil || w.pagers.readLast())
	case lastValues:
		w.next(w.sequences == 0 || w.sequencers.nextLast())
	case lastIndexes:
		if w.indexed == nil || w.settleIndexes() {
			w.groups.look()
			w.stage = lastResets
		}
	case lastResets:
		if w.operator.resetLast() {
			w.readers.readLast()
			w.stage = lastReads
		}
	case lastReads:
		w.awaitReads()
	case idling:
		if w.done = w.idle.check(); w.done {
			return
		}
	}
	w.settle()
	w.move()
}

// calmDown ends all faults, and has somebody look after the dead letters.
func (w *World) calmDown() {
	w.stormy, w.db.swapped = false, false
	if w.db.twin != nil {
		w.db.twin.machine.Spare()
	}
	for _, p := range w.procs.all {
		p.frozen = false
	}
	w.say(nil, "== from here on nothing breaks")
	if w.rates[Image] > 0 && w.procs.restoreOne(aggregating) { // the last one: a message that it never gives back shows
		w.hit(Image)
	}
	w.procs.upgrade()
	w.createIndexes()
	for range 3 {
		for _, f := range []Fault{ReplayAsked, AskedAsNew, DeadLetterDiscarded} {
			if w.rates[f] > 0 && w.happen(f) {
				w.hit(f)
			}
		}
	}
	w.stage = answers
}

// awaitAnswers waits until all clients have their answers, then closes the publishers.
func (w *World) awaitAnswers() {
	if !w.race.compete() || len(w.callers.asked) > 0 || len(w.clients.again) > 0 {
		return
	}
	for _, p := range w.procs.publishers() {
		w.clients.closePublisher(p)
	}
	w.stage, w.procs.ending = closing, true
}

// awaitFolds waits until all messages and dead letters are dealt with, then checks the ledger.
func (w *World) awaitFolds() {
	w.procs.restartHalted()
	switch {
	case len(w.bus.queue)+len(w.bus.held)+len(w.delayed) > 0 || w.procs.atRemotes.Load() > 0 || w.db.deadLettersWait():
	case w.parts.inProcess():
		w.forgetDeadLetters()
	default:
		w.ledger.check()
		if w.shape.operator {
			w.operator.unreset = slices.Clone(counters[:2+w.shape.counters])
		}
		if w.stage = lastPages; w.pages != nil {
			w.settleJournal()
		}
	}
}

// next goes on with the next stage when one is done.
func (w *World) next(done bool) {
	if done {
		w.stage++
	}
}

// awaitReads reads until the schedule has enough calls.
func (w *World) awaitReads() {
	switch {
	case len(w.callers.asked) > 0:
	case w.Calls >= w.least:
		w.stage, w.idle.since = idling, time.Now()
	default:
		w.readers.readLast()
	}
}

// forgetDeadLetters starts all aggregators again, so that they forget the letters that they have read.
func (w *World) forgetDeadLetters() {
	w.parts.removedDeadLetters = nil
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
