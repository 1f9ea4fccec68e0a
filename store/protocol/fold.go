package protocol

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/wire"
)

// Fold is one commit of the engine. It reads nothing. A commit that waited for a change of the settings is outdated: its caller looked at
// the settings, and at its age, before the wait.
func (s *Store) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	waits := !s.gate.TryAcquire(1)
	if waits {
		if err := s.gate.Acquire(ctx, 1); err != nil {
			return store.CommitResult{}, engine.NotApplied(err)
		}
	}
	defer s.gate.Release(1)
	if waits && c.Rules != store.AnyRules {
		return store.CommitResult{}, fmt.Errorf("%w: the settings were being changed", store.ErrOutdated)
	}
	defer s.changes.Add(1)
	f, _ := s.folds.Get().(*fold)
	if f == nil {
		f = &fold{store: s}
	}
	defer f.release()
	f.Commit = c
	commit := &engine.Commit{Changes: f.changes, Taken: c.Taken}
	if s.limits.Conditions {
		commit.Require = []engine.Require{{Key: metaKey, Field: fieldOldest, AtMost: c.Rules}}
	}
	if c.Rules != store.AnyRules {
		commit.Restores = &c.Restores
	}
	result, err := s.engine.Commit(ctx, commit)
	if err != nil {
		return store.CommitResult{}, err
	}
	return store.CommitResult{At: result.At, Shards: f.answers(result.Got)}, nil
}

// A fold makes the changes of a commit one after another, in one Change.
type fold struct {
	store *Store
	*store.Commit
	change          engine.Change
	wanted          []wanted // of the adds in the order of their changes
	bucket, grouped int      // the first ones of the next add

	// Memory for one commit after the other.
	markers []store.Marker
	ids     []byte
	slots   []slot
}

// release lets a later commit have the memory.
func (f *fold) release() {
	clear(f.slots) // they have names
	f.slots = f.slots[:0]
	f.Commit, f.change.Key, f.bucket, f.grouped, f.wanted = nil, engine.Key{}, 0, 0, f.wanted[:0]
	f.store.folds.Put(f)
}

// wanted says which numbers of an add's shard the answer has.
type wanted struct {
	add     int
	buckets bool
}

// changes yields the rows in the order of their kinds. Markers and sums are one commit: after a crash there are both or neither.
func (f *fold) changes(yield func(*engine.Change) bool) {
	_ = f.inserts(yield) && f.growths(yield) && f.adds(yield) && f.days(yield) && f.store.journalChanges(f.Commit, yield)
}

// begin empties the change for another row.
func (f *fold) begin(key engine.Key, op engine.Op) *engine.Change {
	c := &f.change
	*c = engine.Change{Key: key, Op: op, Unset: c.Unset[:0], Set: c.Set[:0], Max: c.Max[:0], Add: c.Add[:0], Want: c.Want[:0]}
	return c
}

func (f *fold) inserts(yield func(*engine.Change) bool) bool {
	f.markers, f.ids = append(f.markers[:0], f.Markers...), f.ids[:0]
	slices.SortFunc(f.markers, func(a, b store.Marker) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for i := range f.markers {
		f.ids = append(f.ids, f.markers[i].ID[:]...)
	}
	names := string(f.ids)
	for i := range f.markers {
		m := &f.markers[i]
		c := f.begin(engine.Key{Kind: kindMarker, Name: names[i*len(m.ID):][:len(m.ID)]}, engine.Insert)
		c.Set = append(c.Set, f.store.dueOf(m.At, m.ExpireAt), field(fieldFingerprint, int64(m.Fingerprint)), field(fieldFold, int64(m.Fold)))
		if !yield(c) {
			return false
		}
	}
	return true
}

func (f *fold) growths(yield func(*engine.Change) bool) bool {
	for i := range f.Growths {
		c := f.begin(recordKey(f.Growths[i].Counter), engine.Upsert)
		c.Unset, c.Max = append(c.Unset, fieldDeletedAt), append(c.Max, field(fieldShards, int64(f.Growths[i].Shards)))
		if !yield(c) {
			return false
		}
	}
	return true
}

// adds yields the shards. Where places are no hashes, the order of the adds is that of their keys.
func (f *fold) adds(yield func(*engine.Change) bool) bool {
	if f.store.limits.Spread {
		for _, i := range f.order() {
			if !f.add(i, f.Adds[i].Hash&upper, yield) {
				return false
			}
		}
		return true
	}
	for i := range f.Adds {
		if !f.add(i, f.Adds[i].Order, yield) {
			return false
		}
	}
	return true
}

// add yields a shard. An add with buckets counts as bucketed too, and one in groups as grouped.
func (f *fold) add(i int, place uint64, yield func(*engine.Change) bool) bool {
	a, facts := &f.Adds[i], &f.store.facts
	c := f.begin(engine.Key{Kind: kindShard, Place: place, Name: a.Counter, Part: uint32(a.Shard)}, engine.Upsert)
	if facts.stats {
		c.Max = append(c.Max, field(fieldShards, int64(f.known(i))), field(fieldTally, f.Tally))
		c.Want = append(c.Want, fieldShards, fieldTally)
	}
	buckets, ring, sum := f.bucketsOf(i), false, a.Sum()
	c.Add = append(c.Add, engine.Field{ID: fieldCount, Value: sum})
	if len(buckets) > 0 {
		c.Add = append(c.Add, engine.Field{ID: fieldBucketed, Value: sum})
	}
	if facts.stats {
		c.Add = append(c.Add, field(fieldTally, 1))
	}
	if facts.ring {
		young := buckets[f.old(buckets):]
		if fresh := f.store.recent.fresh(a.Hash, young); fresh > 0 {
			c.Add, c.Want, ring = append(c.Add, field(fieldBuckets, fresh)), append(c.Want, fieldBuckets), true
		}
		for _, b := range young {
			c.Add = append(c.Add, engine.Field{ID: fieldMinute + engine.FieldID(b.Minute), Value: b.Sum()})
		}
	}
	for _, index := range f.groupsOf(i) {
		c.Add = append(c.Add, engine.Field{ID: groupedBy(index), Value: sum})
	}
	if len(c.Want) > 0 {
		f.wanted = append(f.wanted, wanted{i, ring})
	}
	return yield(c)
}

// order returns the adds in the order of hashes.
func (f *fold) order() []int {
	order := make([]int, len(f.Adds))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &f.Adds[i], &f.Adds[j]
		return cmp.Or(cmp.Compare(a.Hash&upper, b.Hash&upper), strings.Compare(a.Counter, b.Counter), cmp.Compare(a.Shard, b.Shard))
	})
	return order
}

// bucketsOf returns the buckets of an add, and groupsOf the indexes.
func (f *fold) bucketsOf(add int) []store.BucketDelta {
	at := firstOf(f.Buckets, f.bucket, add, func(b *store.BucketDelta) int { return b.Add })
	for f.bucket = at; f.bucket < len(f.Buckets) && f.Buckets[f.bucket].Add == add; {
		f.bucket++
	}
	return f.Buckets[at:f.bucket]
}

func (f *fold) groupsOf(add int) []int64 {
	f.grouped = firstOf(f.Grouped, f.grouped, add, func(g *store.Grouping) int { return g.Add })
	if f.grouped == len(f.Grouped) || f.Grouped[f.grouped].Add != add {
		return nil
	}
	f.grouped++
	return f.Grouped[f.grouped-1].Indexes
}

// firstOf returns the position of the first element that is not before an add. Mostly it is the next one.
func firstOf[T any](all []T, next, add int, of func(*T) int) int {
	if (next == 0 || of(&all[next-1]) < add) && (next == len(all) || of(&all[next]) >= add) {
		return next
	}
	at, _ := slices.BinarySearchFunc(all, add, func(x T, add int) int { return cmp.Compare(of(&x), add) })
	return at
}

// old is the number of buckets that go to days.
func (f *fold) old(buckets []store.BucketDelta) (n int) {
	for n < len(buckets) && (buckets[n].Minute < f.Archive || !f.store.facts.ring) {
		n++
	}
	return n
}

// known is a lower bound for the number of shards: the add itself names one.
func (f *fold) known(add int) int {
	if f.KnownShards == nil {
		return f.Adds[add].Shard + 1
	}
	return f.KnownShards[add]
}

// A slot is a bucket that goes to a day.
type slot struct {
	key    engine.Key
	minute wire.Minute
	sum    engine.Int
}

func (a *slot) compare(b *slot) int {
	return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.minute, b.minute))
}

// days yields the days of the buckets that are not in shards. Several shards of a counter may have the same day.
func (f *fold) days(yield func(*engine.Change) bool) bool {
	slots := f.slots[:0]
	sorted := true
	for buckets := f.Buckets; len(buckets) > 0; {
		a := &f.Adds[buckets[0].Add]
		own := f.bucketsOf(buckets[0].Add)
		buckets = buckets[len(own):]
		place := a.Order
		if f.store.limits.Spread {
			place = f.store.place(a.Counter)
		}
		for _, b := range own[:f.old(own)] {
			slots = append(slots, slot{f.store.dayKeyAt(a.Counter, place, dayOf(b.Minute)), b.Minute, b.Sum()})
			if n := len(slots) - 1; sorted && n > 0 {
				sorted = slots[n-1].compare(&slots[n]) <= 0
			}
		}
	}
	if f.slots = slots; !sorted {
		slices.SortFunc(slots, func(a, b slot) int { return a.compare(&b) })
	}
	for i := 0; i < len(slots); {
		key := &slots[i].key
		c := f.begin(*key, engine.Upsert)
		if !f.store.facts.daysFirst {
			c.Set = append(c.Set, field(fieldDue, int64(day(key.Part+1).first())))
		}
		for i < len(slots) && slots[i].key == *key {
			minute, total := slots[i].minute, engine.Int{}
			for ; i < len(slots) && slots[i].key == *key && slots[i].minute == minute; i++ {
				total = total.Add(slots[i].sum)
			}
			c.Add = append(c.Add, engine.Field{ID: fieldMinute + engine.FieldID(minute), Value: total})
		}
		if !yield(c) {
			return false
		}
	}
	return true
}

// answers reads the numbers that the adds wanted, and notes shards with too many buckets.
func (f *fold) answers(got []int64) []store.ShardStats {
	var stats []store.ShardStats
	if f.store.facts.stats {
		stats = make([]store.ShardStats, len(f.Adds))
	}
	for _, w := range f.wanted {
		if f.store.facts.stats {
			stats[w.add], got = store.ShardStats{KnownShards: int(got[0]), Tally: got[1]}, got[2:]
		}
		if !w.buckets {
			continue
		}
		if got[0] > int64(f.store.cfg.Ring.Buckets) {
			f.store.crowded.note(store.Key{Counter: f.Adds[w.add].Counter, Shard: f.Adds[w.add].Shard})
		}
		got = got[1:]
	}
	return stats
}

// dueOf makes the due of a marker: one of its two times.
func (s *Store) dueOf(at, expireAt time.Time) engine.Field {
	if !s.facts.machineClock {
		at = expireAt
	}
	return field(fieldDue, micros(at))
}

// timesOf is the opposite of dueOf: one of the two is zero.
func (s *Store) timesOf(r *engine.Row) (at, expireAt time.Time) {
	due := timeOf(r.Int64(fieldDue))
	if s.facts.machineClock {
		return due, expireAt
	}
	return at, due
}

// Applied returns the markers that exist.
func (s *Store) Applied(ctx context.Context, ids []wire.PartID) (found []store.Marker, err error) {
	keys := make([]engine.Key, len(ids))
	for i, id := range ids {
		keys[i] = markerKey(id)
	}
	v := s.view()
	defer v.Close()
	rows, err := s.get(ctx, v, keys, fieldDue, fieldFingerprint, fieldFold)
	for i := range rows {
		r := &rows[i]
		if !r.Exists {
			continue
		}
		m := store.Marker{ID: ids[i], Fingerprint: wire.Fingerprint(r.Int64(fieldFingerprint)), Fold: uint64(r.Int64(fieldFold))}
		m.At, m.ExpireAt = s.timesOf(r)
		found = append(found, m)
	}
	return found, err
}
