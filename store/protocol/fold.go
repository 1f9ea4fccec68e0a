package protocol

import (
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

// Fold is one commit of the engine. It reads nothing.
func (s *Store) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	if err := s.gate.enter(ctx); err != nil {
		return store.CommitResult{}, fmt.Errorf("%w: %w", store.ErrNotApplied, err)
	}
	defer s.gate.leave()
	defer s.changes.Add(1)
	f := &fold{store: s, Commit: c}
	commit := &engine.Commit{Changes: f.changes}
	if s.facts.refusesOld {
		commit.Require = []engine.Require{{Key: metaKey, Field: fieldOldest, AtMost: c.Rules}}
	}
	result, err := s.engine.Commit(ctx, commit)
	if err != nil {
		return store.CommitResult{}, outside(err)
	}
	return store.CommitResult{At: result.At, Shards: f.answers(result.Got)}, nil
}

// A fold makes the changes of a commit one after another, in one Change.
type fold struct {
	store *Store
	*store.Commit
	change engine.Change
	wanted []wanted // of the adds in the order of their changes
}

// wanted says which numbers of an add's shard the answer has.
type wanted struct {
	add     int
	buckets bool
}

// changes yields the rows in the order of their kinds. Markers and sums are one commit: after a crash there are both or neither.
func (f *fold) changes(yield func(*engine.Change) bool) {
	_ = f.markers(yield) && f.growths(yield) && f.adds(yield) && f.days(yield) && f.store.journalChanges(f.Commit, yield)
}

// begin empties the change for another row.
func (f *fold) begin(key engine.Key, op engine.Op) *engine.Change {
	c := &f.change
	*c = engine.Change{Key: key, Op: op, Unset: c.Unset[:0], Set: c.Set[:0], Max: c.Max[:0], Add: c.Add[:0], Want: c.Want[:0]}
	return c
}

func (f *fold) markers(yield func(*engine.Change) bool) bool {
	sorted := slices.Clone(f.Markers)
	slices.SortFunc(sorted, func(a, b store.Marker) int { return strings.Compare(string(a.ID[:]), string(b.ID[:])) })
	for i := range sorted {
		m := &sorted[i]
		c := f.begin(markerKey(m.ID), engine.Insert)
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

// adds yields the shards. An add with buckets counts as bucketed too, and one in groups as grouped.
func (f *fold) adds(yield func(*engine.Change) bool) bool {
	for _, i := range f.order() {
		a := &f.Adds[i]
		place := a.Order
		if f.store.facts.spread {
			place = a.Hash & upper
		}
		c := f.begin(engine.Key{Kind: kindShard, Place: place, Name: a.Counter, Part: uint32(a.Shard)}, engine.Upsert)
		w := wanted{add: i}
		if f.store.facts.stats {
			c.Max = append(c.Max, field(fieldShards, int64(f.known(i))), field(fieldTally, f.Tally))
			c.Want = append(c.Want, fieldShards, fieldTally)
		}
		buckets := f.bucketsOf(i)
		c.Add = append(c.Add, field(fieldCount, a.Delta))
		if len(buckets) > 0 {
			c.Add = append(c.Add, field(fieldBucketed, a.Delta))
		}
		if f.store.facts.stats {
			c.Add = append(c.Add, field(fieldTally, 1))
		}
		if f.store.facts.ring {
			young := buckets[f.old(buckets):]
			if fresh := f.store.recent.fresh(a.Hash, young); fresh > 0 {
				c.Add, c.Want, w.buckets = append(c.Add, field(fieldBuckets, fresh)), append(c.Want, fieldBuckets), true
			}
			for _, b := range young {
				c.Add = append(c.Add, field(fieldMinute+engine.FieldID(b.Minute), b.Delta))
			}
		}
		for _, index := range f.groupsOf(i) {
			c.Add = append(c.Add, field(groupedBy(index), a.Delta))
		}
		if f.wanted = append(f.wanted, w); !yield(c) {
			return false
		}
	}
	return true
}

// order returns the adds in the order of their keys. Where places are no hashes, that is theirs.
func (f *fold) order() []int {
	order := make([]int, len(f.Adds))
	for i := range order {
		order[i] = i
	}
	if f.store.facts.spread {
		slices.SortFunc(order, func(i, j int) int {
			a, b := &f.Adds[i], &f.Adds[j]
			return cmp.Or(cmp.Compare(a.Hash&upper, b.Hash&upper), strings.Compare(a.Counter, b.Counter), cmp.Compare(a.Shard, b.Shard))
		})
	}
	return order
}

// bucketsOf returns the buckets of an add, and groupsOf the indexes.
func (f *fold) bucketsOf(add int) []store.BucketDelta {
	at, _ := slices.BinarySearchFunc(f.Buckets, add, func(b store.BucketDelta, add int) int { return cmp.Compare(b.Add, add) })
	n := at
	for n < len(f.Buckets) && f.Buckets[n].Add == add {
		n++
	}
	return f.Buckets[at:n]
}

func (f *fold) groupsOf(add int) []int64 {
	at, found := slices.BinarySearchFunc(f.Grouped, add, func(g store.Grouping, add int) int { return cmp.Compare(g.Add, add) })
	if !found {
		return nil
	}
	return f.Grouped[at].Indexes
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

// days yields the days of the buckets that are not in shards. Several shards of a counter may have the same day.
func (f *fold) days(yield func(*engine.Change) bool) bool {
	type sum struct {
		key    engine.Key
		minute wire.Minute
		delta  int64
	}
	var sums []sum
	for buckets := f.Buckets; len(buckets) > 0; {
		add := buckets[0].Add
		own := f.bucketsOf(add)
		buckets = buckets[len(own):]
		counter := f.Adds[add].Counter
		place := f.store.place(counter)
		for _, b := range own[:f.old(own)] {
			sums = append(sums, sum{f.store.dayKeyAt(counter, place, dayOf(b.Minute)), b.Minute, b.Delta})
		}
	}
	slices.SortStableFunc(sums, func(a, b sum) int { return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.minute, b.minute)) })
	for i := 0; i < len(sums); {
		key := sums[i].key
		c := f.begin(key, engine.Upsert)
		if !f.store.facts.daysFirst {
			c.Set = append(c.Set, field(fieldDue, int64(day(key.Part+1).first())))
		}
		for i < len(sums) && sums[i].key == key {
			minute, total := sums[i].minute, engine.Int{}
			for ; i < len(sums) && sums[i].key == key && sums[i].minute == minute; i++ {
				total = total.Add(engine.IntOf(sums[i].delta))
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
		if got[0] > store.SeriesBuckets {
			f.store.crowded.note(store.Key{Counter: f.Adds[w.add].Counter, Shard: f.Adds[w.add].Shard})
		}
		got = got[1:]
	}
	return stats
}

// dueOf makes the due of a marker: one of its two times.
func (s *Store) dueOf(at, expireAt time.Time) engine.Field {
	if s.facts.expires {
		at = expireAt
	}
	return field(fieldDue, micros(at))
}

// timesOf is the opposite of dueOf: one of the two is zero.
func (s *Store) timesOf(r *engine.Row) (at, expireAt time.Time) {
	due := timeOf(r.Int64(fieldDue))
	if s.facts.expires {
		return at, due
	}
	return due, expireAt
}

// Applied returns the markers that exist.
func (s *Store) Applied(ctx context.Context, ids []wire.PartID) (found []store.Marker, err error) {
	keys := make([]engine.Key, len(ids))
	for i, id := range ids {
		keys[i] = markerKey(id)
	}
	v := s.engine.View(time.Time{})
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
