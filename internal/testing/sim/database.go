package sim

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
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
	lastAt  time.Time                   // of the last fold
	most    map[string]int              // shards of each counter that were folded to
	letters []store.DeadLetter          // all, by key
	held    map[string]letterContent
}

func newDatabase(w *World, m Machine) *database {
	k := w.kernel
	db := &database{
		World: w, engines: make(map[engine.Engine]*proc), swept: make(map[string]int), leaving: make(map[string]bool), buried: make(map[string]store.DeadLetter),
		folds: make(map[string][]foldedTo), most: make(map[string]int), held: make(map[string]letterContent),
	}
	if m != nil {
		db.twin = &twin{kernel: k, machine: m, ends: db.endAll}
		db.twin.open()
		k.limits = db.twin.engine.Limits()
	}
	db.mem = memory.New(protocol.Kinds, memory.Options{Limits: k.limits, Clock: k.storeNow, Past: 100 * 365 * 24 * time.Hour, Errorf: func(format string, args ...any) { k.violate(format, args...) }})
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
		return asked || !db.held[d.Key].readable
	})
}

// deadLettersWait reports whether there are letters that an aggregator can read and is asked to count.
func (db *database) deadLettersWait() bool {
	return slices.ContainsFunc(db.letters, func(d store.DeadLetter) bool {
		_, asked := store.ReplayOf(d.Key)
		return asked && db.held[d.Key].readable
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

// What oracles see of the database: all of it, at any moment.

// foldedTo is the sum of all that was folded to a counter until a moment.
type foldedTo struct {
	at  time.Time
	sum int64
}

// noteFolded adds a commit to the sums, and looks whether records name its shards.
func (db *database) noteFolded(c *store.Commit) {
	at := db.mem.Latest()
	db.lastAt = at
	for i := range c.Adds {
		a := &c.Adds[i]
		db.folds[a.Counter] = append(db.folds[a.Counter], foldedTo{at, db.sumOf(a.Counter) + a.Delta})
		db.most[a.Counter] = max(db.most[a.Counter], a.Shard+1)
		if named := db.shardsNamed(a.Counter); named <= a.Shard {
			db.violate("a commit adds to shard %d of %s, and its record names %d", a.Shard, a.Counter, named)
		}
	}
}

// sumOf is the sum of all that was folded to a counter, and not removed.
func (db *database) sumOf(counter string) int64 {
	if all := db.folds[counter]; len(all) > 0 {
		return all[len(all)-1].sum
	}
	return 0
}

// totalAt is the sum at a moment.
func (db *database) totalAt(counter string, at time.Time) int64 {
	all := db.folds[counter]
	for i := len(all) - 1; i >= 0; i-- {
		if !all[i].at.After(at) {
			return all[i].sum
		}
	}
	return 0
}

// rowOf reads a row.
func (db *database) rowOf(kind engine.KindID, name string) engine.Row {
	v := db.engine.View()
	defer v.Close()
	return must(v.Get(background, []engine.Key{{Kind: kind, Name: name}}, engine.All))[0]
}

// shardsNamed is the number of shards in a counter's record; 0 if it has none.
func (db *database) shardsNamed(counter string) int {
	r := db.rowOf(kindRecord, counter)
	return int(r.Int64(fieldShards))
}

// servedAt returns the total that a reader should show of a counter at a moment: the sum of all its
// shards, including any that its record does not name, less its baseline.
func (db *database) servedAt(counter string, at time.Time) (total int64, exists bool) {
	keys := []store.Key{{Counter: counter, Shard: store.RecordKey}}
	for n := range db.most[counter] {
		keys = append(keys, store.Key{Counter: counter, Shard: n})
	}
	db.mem.ShowPast(at)
	v := db.own.View()
	defer v.Close()
	values := must(v.Lookup(background, keys))
	for _, shard := range values[1:] {
		total += int64(shard.Count.Lo)
	}
	if sum := db.totalAt(counter, at); sum != total && !db.leaving[counter] && !db.crowd.overflows(counter) {
		db.violate("the shards of %s sum to %d as of %s, when %d were folded", counter, total, at.Format(clockFormat), sum)
	}
	r := &values[0]
	total += int64(r.Remainder.Sub(r.Reset.Baseline).Lo)
	return total, r.Exists && (r.Reset.DeletedAt.IsZero() || total != 0)
}

// left is the rest of a counter after its resets.
func (db *database) left(counter string) int64 {
	total, _ := db.servedAt(counter, db.moment())
	return total
}

// moment is a moment of the store: every view of it or of a later one shows all folds so far.
func (db *database) moment() time.Time {
	v := db.own.View()
	defer v.Close()
	must(v.Lookup(background, nil))
	return v.ReadTime()
}

// letterContent is what of a letter's payload oracles ask for often.
type letterContent struct {
	ids      []wire.PartID // idsIn
	readable bool
}

// deadLetters returns all dead letters in the order of their keys.
func (db *database) deadLetters() []store.DeadLetter { return slices.Clone(db.letters) }

// noteLetter notes the present state of a letter.
func (db *database) noteLetter(key string) {
	at, had := slices.BinarySearchFunc(db.letters, key, func(d store.DeadLetter, key string) int { return strings.Compare(d.Key, key) })
	if had {
		db.letters = slices.Delete(db.letters, at, at+1)
	}
	if found := must(db.own.GetDeadLetters(background, []string{key})); len(found) > 0 {
		db.letters, db.buried[key] = slices.Insert(db.letters, at, found[0]), found[0]
		_, err := decode(found[0].Payload)
		db.held[key] = letterContent{idsIn(found[0]), err == nil}
	}
}

// buckets returns the series of a counter.
func (db *database) buckets(counter string) []store.Bucket {
	v := db.own.View()
	defer v.Close()
	return db.bucketsIn(v, counter)[0]
}

func (db *database) bucketsIn(v store.View, counters ...string) [][]store.Bucket {
	of := make([]store.Record, len(counters))
	for i, counter := range counters {
		of[i] = store.Record{Counter: counter, Shards: db.most[counter]}
	}
	return must(v.Series(background, of, 0, wire.MinuteOf(wire.MaxTime)))
}

// journaled returns all records of the journal.
func (db *database) journaled() (records []store.JournalRecord) {
	v := db.own.JournalView()
	defer v.Close()
	for q := (store.JournalQuery{Limit: math.MaxInt32}); ; {
		page := must(v.JournalRecords(background, q))
		if records = append(records, page.Records...); !page.More {
			return records
		}
		q.From = store.JournalPlace{Key: page.Records[len(page.Records)-1].Key, Position: 1}
	}
}

// settings are those of the database now.
func (db *database) settings() store.Settings {
	checked, err := db.own.Check(background)
	if err != nil && !errors.Is(err, store.ErrReadOnly) {
		panic(err)
	}
	return checked.Settings
}

// rulesNow are its rules.
func (db *database) rulesNow() *store.Rules { return db.set.Rules }
