package protocol

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/wire"
)

// A series is in days: rows with sums by the minute and by the quarter hour. With a ring the newest minutes are in the shards. A
// fold adds a minute to either place at any time, and it is right.

func dayOf(m wire.Minute) day { return day(m / store.DayMinutes) }

// first is the first minute of the day.
func (d day) first() wire.Minute { return wire.Minute(d) * store.DayMinutes }

// archiveAhead is how far a bucket may lie ahead of the database's clock, at most: store.SeriesAhead, and the error of a folding
// process's clock. It costs a look-up only in the last minutes of a day.
const archiveAhead = store.SeriesAhead + 10*time.Minute

// lastDay is the last day before a minute that can have buckets at the view's moment.
func (v *view) lastDay(before wire.Minute) day {
	return dayOf(min(before, wire.MinuteOf(v.At().Add(archiveAhead))) - 1)
}

// lastDay is after all days of increments.
var lastDay = dayOf(wire.MinuteOf(wire.MaxTime))

// daysByKey is the most days that are looked up although they may not exist: a month.
const daysByKey = 32

// dayKeys returns for each counter the keys of all its days from first to last, and perhaps of some that do not exist.
func (v *view) dayKeys(ctx context.Context, counters []string, first, last day) ([][]engine.Key, error) {
	keys := make([][]engine.Key, len(counters))
	if last-first >= daysByKey && !v.store.facts.daysFirst {
		for i, counter := range counters {
			r := engine.Range{Kind: kindDay, From: v.store.dayKey(counter, first), To: v.store.dayKey(counter, last+1)}
			var err error
			if keys[i], err = v.keys(ctx, r, math.MaxInt); err != nil {
				return nil, err
			}
		}
		return keys, nil
	}
	var days []day
	var err error
	if last-first >= daysByKey {
		days, err = v.days(ctx, first, last)
	} else {
		for d := first; d <= last; d++ {
			days = append(days, d)
		}
	}
	for i, counter := range counters {
		place := v.store.place(counter)
		for _, d := range days {
			keys[i] = append(keys[i], v.store.dayKeyAt(counter, place, d))
		}
	}
	return keys, err
}

// days returns the days on which any counter has a series, where days are first. Each costs a seek.
func (v *view) days(ctx context.Context, first, last day) (days []day, err error) {
	for d := first; d <= last; {
		rows := v.Scan(ctx, engine.Range{Kind: kindDay, From: engine.Key{Place: dayPlace(d)}, To: engine.Key{Place: dayPlace(last + 1)}, Page: 1})
		row := rows.Next()
		if row != nil {
			days = append(days, day(row.Key.Part))
		}
		if rows.Close(); row == nil {
			return days, rows.Err()
		}
		d = days[len(days)-1] + 1
	}
	return days, nil
}

// Series reads the shards with a ring and the days, at one moment: a move between two would show its sums twice or not at
// all.
func (v *view) Series(ctx context.Context, of []store.Record, from, to wire.Minute) ([][]store.Bucket, error) {
	counters, sums := make([]string, len(of)), make([]slotSums, len(of))
	for i := range of {
		counters[i], sums[i] = of[i].Counter, slotSums{}
	}
	from = max(from, 0)
	if _, err := v.Get(ctx, nil); err != nil {
		return nil, err
	}
	days, err := v.dayKeys(ctx, counters, dayOf(from), v.lastDay(to))
	if err != nil {
		return nil, err
	}
	var keys []engine.Key
	var whose []slotSums
	for i := range of {
		if v.store.facts.ring {
			for n := range of[i].Shards {
				keys = append(keys, v.store.shardKey(of[i].Counter, n))
			}
		}
		keys = append(keys, days[i]...)
		whose = append(whose, slices.Repeat(sums[i:i+1], len(keys)-len(whose))...)
	}
	err = v.store.each(ctx, v, keys, []engine.FieldID{engine.All}, func(i int, r *engine.Row) { whose[i].gather(r, from, to) })
	if err != nil {
		return nil, err
	}
	found := make([][]store.Bucket, len(of))
	for i := range sums {
		found[i] = sums[i].buckets()
	}
	return found, nil
}

// SlotSums are sums by the fields of minutes and quarter hours.
type slotSums map[engine.FieldID]engine.Int

// slotOf returns the first minute of a bucket's field; ok is false for other fields.
func slotOf(id engine.FieldID) (m wire.Minute, quarter, ok bool) {
	switch {
	case id >= fieldGrouped || id < fieldMinute:
		return 0, false, false
	case id >= fieldQuarter:
		return wire.Minute(id - fieldQuarter), true, true
	}
	return wire.Minute(id - fieldMinute), false, true
}

// gather adds the buckets of a row that begin at from or later and before to.
func (s slotSums) gather(r *engine.Row, from, to wire.Minute) {
	for _, f := range r.Fields {
		if m, _, ok := slotOf(f.ID); ok && m >= from && m < to {
			s[f.ID] = s[f.ID].Add(f.Value)
		}
	}
}

// buckets returns the sums in the order of their minutes, without those of 0.
func (s slotSums) buckets() []store.Bucket {
	found := make([]store.Bucket, 0, len(s))
	for id, sum := range s {
		if sum == (engine.Int{}) {
			continue
		}
		b := store.Bucket{Sum: sum}
		b.Minute, b.Quarter, _ = slotOf(id)
		found = append(found, b)
	}
	slices.SortFunc(found, func(a, b store.Bucket) int {
		if a.Minute == b.Minute && a.Quarter != b.Quarter {
			return map[bool]int{false: -1, true: 1}[a.Quarter]
		}
		return cmp.Compare(a.Minute, b.Minute)
	})
	return found
}

// A recent remembers the buckets that this process has folded to lately. It forgets some early.
type recent struct {
	mu      sync.Mutex
	buckets []uint64
}

// fresh counts the buckets of the shard with a wire.ShardHash that it does not remember, and remembers them.
func (r *recent) fresh(shard uint64, buckets []store.BucketDelta) (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range buckets {
		if r.buckets == nil {
			r.buckets = make([]uint64, 1<<16)
		}
		bucket := (shard ^ uint64(b.Minute)) * 0x9e3779b97f4a7c15 // Fibonacci hashing (Knuth, volume 3, 6.4)
		if at := &r.buckets[bucket>>48]; *at != bucket {
			*at = bucket
			n++
		}
	}
	return n
}

// Crowded are shards with too many buckets.
type crowded struct {
	mu     sync.Mutex
	shards map[store.Key]struct{}
}

// mostCrowded bounds them. A fold of a later minute finds a shard that was left out again.
const mostCrowded = 10_000

func (c *crowded) note(k store.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shards == nil {
		c.shards = make(map[store.Key]struct{})
	}
	if len(c.shards) < mostCrowded {
		k.Counter = strings.Clone(k.Counter) // it is cut from a message, and would keep all of it in memory
		c.shards[k] = struct{}{}
	}
}

func (c *crowded) take() map[store.Key]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	shards := c.shards
	c.shards = nil
	return shards
}
