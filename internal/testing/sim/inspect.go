package sim

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/wire"
)

// What oracles see of the database: all of it, at any moment.

// foldedTo is the sum of all that was folded to a counter until a moment.
type foldedTo struct {
	at  time.Time
	sum int64
}

// noteFolded adds a commit to the sums, and looks whether records name its shards.
func (db *database) noteFolded(c *store.Commit) {
	at := db.mem.Latest()
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
	v := db.engine.View(time.Time{})
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
	v := db.own.ViewAt(at)
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

// marker returns the marker of a part, if it exists.
func (db *database) marker(id wire.PartID) (m store.Marker, ok bool) {
	if found := must(db.own.Applied(background, []wire.PartID{id})); len(found) > 0 {
		return found[0], true
	}
	return m, false
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
	}
}

// buckets returns the series of a counter.
func (db *database) buckets(counter string) []store.Bucket {
	v := db.own.View()
	defer v.Close()
	return db.bucketsIn(v, counter)
}

func (db *database) bucketsIn(v store.View, counter string) []store.Bucket {
	of := store.Record{Counter: counter, Shards: db.most[counter]}
	return must(v.Series(background, []store.Record{of}, 0, wire.MinuteOf(wire.MaxTime)))[0]
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
