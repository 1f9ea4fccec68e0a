package sim

import "time"

// event lets something break that breaks by itself.
func (w *World) event() {
	var enabled []Fault
	for f := Redelivered; int(f) < len(faultNames); f++ {
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
	if w.indexed != nil && !w.embedded && w.rng.IntN(2) == 0 { // or few indexes are built before nothing breaks any more
		enabled = []Fault{KillIndexer, IndexChanged, RulesSettled}
	}
	f := pick(w.rng, enabled)
	if w.rates[NearWindow] > w.rng.Float64() {
		f = NearWindow
	}
	if w.happen(f) {
		w.hit(f)
	}
}

// happen lets the fault happen, if it can now.
func (w *World) happen(f Fault) bool {
	do, ok := w.events[f]
	return ok && do()
}

// newEvents returns a function for each fault that happens by itself. It reports whether the fault
// could happen.
func (w *World) newEvents() map[Fault]func() bool {
	return map[Fault]func() bool{
		StoreAway:           func() bool { return w.lose(StoreAway) },
		BusAway:             func() bool { return w.lose(BusAway) },
		Swapped:             w.swapDatabase,
		KillPublisher:       func() bool { return w.procs.killOne(publishing) },
		KillAggregator:      func() bool { return w.procs.killOne(aggregating) },
		KillReader:          w.killReader,
		TwoVersions:         w.changeVersion,
		Drain:               func() bool { return w.drainOne(aggregating) },
		DrainPublisher:      func() bool { return w.drainOne(publishing) },
		Image:               w.restoreAny,
		Freeze:              w.procs.freezeOne,
		ClockJumps:          w.setClock,
		StoreClockJumps:     w.stepStore,
		PastWindow:          w.passWindow,
		Suspended:           w.suspendAll,
		WindowLonger:        func() bool { return w.changeWindow(true) },
		WindowShorter:       func() bool { return w.changeWindow(false) },
		NearWindow:          w.nearWindow,
		DayPasses:           w.passDay,
		Swept:               w.sweep,
		Redelivered:         w.bus.redeliver,
		AckForgotten:        w.bus.forgetAck,
		StreamEnds:          w.bus.endOne,
		GivenUp:             func() bool { return w.bus.giveUp() },
		ReplayAsked:         w.operator.replay,
		UnreadableAsked:     w.operator.askUnreadable,
		AskedAsNew:          func() bool { return w.operator.lookAfter(asNewOp) },
		DeadLetterDiscarded: func() bool { return w.operator.lookAfter(discardOp) },
		ShardsGrown:         w.db.growAny,
		KillIndexer:         func() bool { return w.procs.killOne(indexing) },
		IndexChanged:        w.changeIndex,
		RulesSettled:        w.passSettle,
		JournalRuled:        w.changeJournal,
	}
}

// lose makes the store or the bus unavailable for a while.
func (w *World) lose(f Fault) bool {
	w.until[f] = time.Now().Add([]time.Duration{time.Second, 20 * time.Second, time.Minute}[w.rng.IntN(3)])
	return true
}

// suspendAll suspends all machines. Calls that are on their way to the store arrive afterwards, while others already read
// the journal up to later times.
func (w *World) suspendAll() bool {
	w.suspend()
	if w.pages != nil {
		for range mostWalks {
			w.pagers.read()
		}
	}
	return true
}

// suspendFold suspends all machines now and then while a fold is on its way and the journal is read.
func (w *World) suspendFold(s *step) bool {
	return s.op == "fold" && w.pages != nil && !w.embedded && !s.frozen && w.rng.IntN(4) == 0 && w.strikes(Suspended) && w.suspendAll()
}

// killReader ends a reader. If the store may be away, its successor often does not learn the store's time, and the cache has totals.
func (w *World) killReader() bool {
	if !w.procs.killOne(reading) {
		return false
	}
	if w.rates[StoreAway] > 0 && w.rng.IntN(2) == 0 && w.lose(StoreAway) {
		w.hit(StoreAway)
		w.readers.readNew()
	}
	return true
}

// swapDatabase puts another database in the place of the store's, or the first one back. The aggregators soon know.
func (w *World) swapDatabase() bool {
	w.db.swapped = !w.db.swapped
	for _, p := range w.procs.lives(aggregating) {
		w.readSettings(p)
	}
	for _, p := range w.procs.lives(reading) {
		w.readers.probe(p)
	}
	return true
}

// restoreAny restores a process of any role from an image.
func (w *World) restoreAny() bool {
	return w.procs.restoreOne([]role{publishing, aggregating, aggregating, reading}[w.rng.IntN(4)])
}

// drainOne stops a process in good order.
func (w *World) drainOne(r role) bool {
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

// changeVersion ends a publisher or an aggregator, in good order or not; its successor
// may be of another version. The fault is hit when such a successor starts.
func (w *World) changeVersion() bool {
	r := []role{aggregating, publishing}[w.rng.IntN(2)]
	if w.rng.IntN(2) == 0 {
		w.drainOne(r)
	} else {
		w.procs.killOne(r)
	}
	return false
}
