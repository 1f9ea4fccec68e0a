package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
)

// A database is the engine below the stores of all processes, whose answers get lost.
type database struct {
	*World

	mem     *memory.Database
	twin    *twin                       // nil without a machine
	engines map[engine.Engine]*proc     // guarded by kernel.mu
	engine  engine.Engine               // of the simulator itself: its calls do not park
	own     *protocol.Store             // for oracles
	other   *protocol.Store             // of other processes, whose calls do not park
	set     store.Settings              // that were written last
	swapped bool                        // another one has taken its place
	sweptAt time.Duration               // kernel.jumped at the last sweep
	swept   map[string]int              // in which step each counter was swept last
	leaving map[string]bool             // groups of deleted indexes, from the first row that is removed to the record
	buried  map[string]store.DeadLetter // all letters that ever were, by key
	folds   map[string][]foldedTo       // by counter
	most    map[string]int              // shards of each counter that were folded to
	letters []store.DeadLetter          // all, by key
}

func newDatabase(w *World, m Machine) *database {
	k := w.kernel
	db := &database{
		World: w, engines: make(map[engine.Engine]*proc), swept: make(map[string]int), leaving: make(map[string]bool), buried: make(map[string]store.DeadLetter),
		folds: make(map[string][]foldedTo), most: make(map[string]int),
	}
	if m != nil {
		db.twin = &twin{kernel: k, machine: m, ends: db.endAll}
		db.twin.open()
		k.limits = db.twin.engine.Limits()
		k.limits.Past = 100 * 365 * 24 * time.Hour // of the copy
	}
	db.mem = memory.New(protocol.Kinds, memory.Options{Limits: k.limits, Clock: k.storeNow, Errorf: func(format string, args ...any) { k.violate(format, args...) }})
	db.engine = db.mem.Open()
	if m != nil {
		db.twin.copy, db.twin.mirror = db.mem, db.engine
		db.engine = &twinEngine{tw: db.twin, around: db.around, free: true, past: true}
	}
	db.openOwn()
	if m == nil {
		db.mem.Around(db.around)
	}
	return db
}

// openOwn opens the stores of the simulator.
func (db *database) openOwn() {
	db.own, db.other = db.openWith(db.engine, 1, 0), db.openWith(db.openEngine(), 1, 0)
}

func (db *database) openEngine() engine.Engine {
	if db.twin != nil {
		return &twinEngine{tw: db.twin, around: db.around, free: true}
	}
	return db.mem.Open()
}

// endAll ends all processes that have the database: they know nothing of the answers from now on.
func (db *database) endAll() {
	db.setClocks(func() {
		for _, p := range db.engines {
			p.dead = true
		}
	})
}

// powerLost reports whether the power was cut since the last call.
func (db *database) powerLost() bool {
	if db.twin == nil || !db.twin.lost {
		return false
	}
	db.twin.lost = false
	return true
}

// end closes the database, and compares it with its copy.
func (db *database) end(compare bool) {
	if db.twin == nil {
		return
	}
	if compare {
		db.twin.compare()
	}
	db.twin.close(true)
}

// newJitter returns a source of random durations.
func (k *kernel) newJitter(n uint64) func(time.Duration) time.Duration {
	rng := rand.New(rand.NewPCG(k.seed^n<<32, 0x6a6974746572))
	return func(d time.Duration) time.Duration {
		k.mu.Lock()
		defer k.mu.Unlock()
		return time.Duration(rng.Int64N(int64(d)))
	}
}

// forget lets the store drop expired rows: at once, the worst case.
func (db *database) forget() {
	if db.limits.Expires {
		db.parts.forgetting()
		db.mem.Expire(db.storeNow())
		return
	}
	if s := db.sweeper(); s != nil {
		_ = s.Sweep(alone())
	}
}

// sweeper is a store that sweeps for the simulator: that of the process that has the database alone.
func (db *database) sweeper() *protocol.Store {
	if !db.embedded {
		return db.other
	}
	var found *protocol.Store
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, p := range db.engines {
		if !p.dead {
			found = p.store
		}
	}
	return found
}

// readable is the letters that can be read.
func (db *database) readable() []store.DeadLetter {
	return slices.DeleteFunc(db.deadLetters(), func(d store.DeadLetter) bool {
		_, asked := store.ReplayOf(d.Key)
		_, err := decode(d.Payload)
		return asked || err != nil
	})
}

// deadLettersWait reports whether there are letters that an aggregator can read and is asked to count.
func (db *database) deadLettersWait() bool {
	return slices.ContainsFunc(db.deadLetters(), func(d store.DeadLetter) bool {
		if _, asked := store.ReplayOf(d.Key); !asked {
			return false
		}
		_, err := decode(d.Payload)
		return err == nil
	})
}

// putAhead has the store's clock have been ahead, by far, at the last reset of a counter.
func (db *database) putAhead(counter string) {
	r := db.rowOf(kindRecord, counter)
	at := r.Int64(fieldResetAt)
	if at == 0 {
		return
	}
	by := 5 * 365 * 24 * time.Hour
	if _, err := db.engine.Transact(background, false, func(tx engine.Tx) error {
		tx.Change(&engine.Change{Key: engine.Key{Kind: kindRecord, Name: counter}, Op: engine.Update, Set: []engine.Field{{ID: fieldResetAt, Value: engine.IntOf(at + by.Microseconds())}}})
		return nil
	}); err != nil {
		return // no room
	}
	db.say(nil, "the last reset of %s was by a clock that was %s ahead", counter, by)
}

// sweep removes deleted counters, as an aggregator does every hour.
func (db *database) sweep() bool {
	s := db.sweeper()
	if s == nil || !db.maySweep() {
		return false
	}
	n, _ := s.SweepCounters(alone(), store.SweepAfter)
	_ = s.SweepSeries(alone())
	db.say(nil, "%d deleted counters are swept", n)
	return n > 0
}

// maySweep reports whether a sweep may begin now. A process that has the database alone sweeps once in an hour, in which aggregators
// forget their records.
func (db *database) maySweep() bool {
	if db.embedded && db.jumped-db.sweptAt < store.SweepEvery {
		return false
	}
	db.sweptAt = db.jumped
	return true
}

// growAny gives a counter more shards.
func (db *database) growAny() bool {
	_ = db.other.Grow(background, []store.Growth{{Counter: pick(db.rng, counters), Shards: 1 + db.rng.IntN(8)}})
	return true
}
