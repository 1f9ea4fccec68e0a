package datastore

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

func TestSlots(t *testing.T) {
	t.Parallel()
	for property, want := range map[string]slot{
		"m0": {}, "m29000000": {minute: 29000000}, "q29000010": {minute: 29000010, quarter: true}, "m2147483647": {minute: math.MaxInt32},
	} {
		got, ok := slotOf(property)
		if !ok || got != want || got.property() != property {
			t.Errorf("%s: got %+v, %t, %s; want %+v", property, got, ok, got.property(), want)
		}
	}
	for _, property := range []string{"", "m", "q", "m-1", "m01", "m+1", "m1x", "m2147483648", "n5", "max", "counter", bucketCount, "bucketed", "due"} {
		if got, ok := slotOf(property); ok {
			t.Errorf("%q is the bucket %+v, want none", property, got)
		}
	}
	if got := (slot{minute: 44}).joined(); got != (slot{minute: 30, quarter: true}) {
		t.Errorf("minute 44 is joined to %+v", got)
	}
}

// The keys of a counter's days are in the order of the days.
func TestArchiveKeys(t *testing.T) {
	t.Parallel()
	for _, counter := range []string{"a", "a:b", "page:/é 漢字", "20260101", "a:20260101", ":"} {
		var names []string
		for _, d := range []seriesDay{0, 1, 365, 20_000, lastDay} {
			r := archiveRef(counter, d)
			names = append(names, r.name)
			if got, day, ok := archived(r); !ok || got != counter || day != d {
				t.Errorf("%q: got counter %q, day %d, %t; want %q and %d", r.name, got, day, ok, counter, d)
			}
		}
		if !slices.IsSorted(names) {
			t.Errorf("the keys %q are not sorted", names)
		}
	}
	right := archiveRef("a", 20_000).name
	for _, name := range []string{"", "x", right[1:], right[:len(right)-1], right + "0", "0" + right[1:], right[:len(right)-8] + "20261301"} {
		if counter, day, ok := archived(ref{kindSeries, name}); ok && name != right {
			t.Errorf("the key %q is day %d of %q, want none", name, day, counter)
		}
	}
}

func TestWideSums(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		terms    []int64
		want     int64
		overflow bool
		clamped  int64
	}{
		{nil, 0, false, 0},
		{[]int64{5, -7}, -2, false, -2},
		{[]int64{math.MaxInt64 - 1, math.MaxInt64 - 1, -(math.MaxInt64 - 1)}, math.MaxInt64 - 1, false, math.MaxInt64 - 1},
		{[]int64{math.MinInt64 + 1, math.MinInt64 + 1, math.MaxInt64 - 1}, math.MinInt64 + 1 - 1, false, math.MinInt64},
		{[]int64{math.MaxInt64 - 1, 5}, 0, true, math.MaxInt64},
		{[]int64{math.MinInt64 + 1, -5}, 0, true, math.MinInt64},
		{[]int64{math.MaxInt64}, 0, true, math.MaxInt64}, // an increment had no effect there
		{[]int64{math.MinInt64}, 0, true, math.MinInt64},
	} {
		var w wide
		for _, n := range c.terms {
			w = w.plus(n)
		}
		if got, overflow := w.total(); overflow != c.overflow || !overflow && got != c.want || w.clamped() != c.clamped {
			t.Errorf("%d: got %d, overflow %t, clamped %d; want %d, %t, %d", c.terms, got, overflow, w.clamped(), c.want, c.overflow, c.clamped)
		}
	}
}

func TestRecentBuckets(t *testing.T) {
	t.Parallel()
	r := new(recent)
	shard := wire.ShardHash("a", 0)
	if !r.isNew(shard, 29_000_000) || r.isNew(shard, 29_000_000) {
		t.Error("the first fold to a bucket is new, and the second is not")
	}
	if !r.isNew(shard, 29_000_001) || !r.isNew(wire.ShardHash("a", 1), 29_000_000) {
		t.Error("another minute and another shard are new")
	}
	kept := 0
	for i := range 1000 {
		r.isNew(wire.ShardHash(fmt.Sprint(i), 0), 29_000_000)
	}
	for i := range 1000 {
		if !r.isNew(wire.ShardHash(fmt.Sprint(i), 0), 29_000_000) {
			kept++
		}
	}
	if kept < 950 {
		t.Errorf("of 1,000 buckets it remembers %d", kept)
	}
}

func TestCrowdedIsBounded(t *testing.T) {
	t.Parallel()
	var c crowded
	if !c.none() || len(c.take()) != 0 {
		t.Error("there are shards at the start")
	}
	for i := range mostCrowded + 5 {
		c.note(store.Key{Counter: "a", Shard: i})
		c.note(store.Key{Counter: "a", Shard: 0})
	}
	if n := len(c.take()); n != mostCrowded || !c.none() {
		t.Errorf("it has %d shards, want %d, and none after they were taken", n, mostCrowded)
	}
}
