package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// A shard is exact beyond int64, and when it comes back. So is one commit.
func testSumsBeyondInt64(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	for counter, deltas := range map[string][]int64{
		"top": {wire.MaxSum, wire.MaxSum - 1}, "beyond the top": {wire.MaxSum, wire.MaxSum, 5},
		"far beyond the top": {wire.MaxSum, wire.MaxSum, wire.MaxSum, wire.MaxSum, wire.MaxSum},
		"bottom":             {-wire.MaxSum, -wire.MaxSum}, "beyond the bottom": {-wire.MaxSum, -wire.MaxSum, -1},
		"there and back": {wire.MaxSum, wire.MaxSum, wire.MaxSum, wire.MaxSum, -wire.MaxSum, -wire.MaxSum, -wire.MaxSum, 3},
		"below and back": {-wire.MaxSum, -wire.MaxSum, -wire.MaxSum, wire.MaxSum, wire.MaxSum, wire.MaxSum, -3},
	} {
		want := int128.Int{}
		for _, d := range deltas {
			mustFold(t, s, commit(nil, add(counter, 0, d)))
			want = want.Add(of(d))
		}
		v := s.View()
		if got := lookup(t, v, store.Key{Counter: counter, Shard: 0})[0]; got != (store.Value{Exists: true, Count: want}) {
			t.Errorf("%s: got %+v, want %d", counter, got, want)
		}
		v.Close()
	}
	m, sum := today(t, s), int128.Int{}
	for _, minutes := range [][2]int128.Int{{{Hi: 5, Lo: 7}, {Hi: -9}}, {{Hi: 300}, of(1)}, {of(-1), {Hi: -1 << 20, Lo: 3}}} {
		c := commit(one(marker()), add("wide", 0, 0))
		for i, n := range minutes {
			b := store.BucketDelta{Minute: m + wire.Minute(i)}
			b.Delta, b.Upper = n.Halves()
			c.Buckets = append(c.Buckets, b)
		}
		both := minutes[0].Add(minutes[1])
		c.Adds[0].Delta, c.Adds[0].Upper = both.Halves()
		mustFold(t, s, c)
		sum = sum.Add(both)
	}
	v := s.View()
	defer v.Close()
	if got := lookup(t, v, store.Key{Counter: "wide", Shard: 0})[0]; got != (store.Value{Exists: true, Count: sum, Bucketed: sum}) {
		t.Errorf("wide commits: got %+v, want %d", got, sum)
	}
	wantSeries(t, "wide commits", seriesIn(t, v, "wide", m, m+2), store.Bucket{Minute: m, Sum: int128.Int{Hi: 305, Lo: 6}}, store.Bucket{Minute: m + 1, Sum: int128.Int{Hi: -9 - 1<<20, Lo: 4}})
}

func testViewIsPinned(t *testing.T, su *suite) {
	s := su.open(t)
	grow(t, s, store.Growth{Counter: "a", Shards: 1})
	mustFold(t, s, commit(nil, add("a", 0, 1)))
	v := s.View()
	defer v.Close()
	lookup(t, v, store.Key{Counter: "zzz", Shard: 0})
	at := v.ReadTime()

	mustFold(t, s, commit(nil, add("a", 0, 10), add("b", 0, 10)))
	grow(t, s, store.Growth{Counter: "a", Shards: 2}, store.Growth{Counter: "b", Shards: 2})
	for range 3 {
		got := lookup(t, v, store.Key{Counter: "a", Shard: 0}, store.Key{Counter: "a", Shard: store.RecordKey},
			store.Key{Counter: "b", Shard: 0}, store.Key{Counter: "b", Shard: store.RecordKey})
		want := []store.Value{{Exists: true, Count: of(1)}, {Exists: true, Shards: 1}, {}, {}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a view saw data that was written after its first call (-want +got):\n%s", diff)
		}
		records, err := v.List(t.Context(), "", "", 10)
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		if diff := cmp.Diff([]store.Record{{Counter: "a", Shards: 1}}, records); diff != "" {
			t.Errorf("a view listed records that were written after its first call (-want +got):\n%s", diff)
		}
	}
	if got := v.ReadTime(); !got.Equal(at) {
		t.Errorf("the view's moment moved from %s to %s", at, got)
	}
	if got := count(t, s, "a", 0); got != 11 {
		t.Errorf("a new view: got %d, want 11", got)
	}
	testListPins(t, s)
}

// List may be the first call.
func testListPins(t *testing.T, s store.Store) {
	v := s.View()
	defer v.Close()
	if _, err := v.List(t.Context(), "", "", 10); err != nil {
		t.Fatalf("List: %v", err)
	}
	if v.ReadTime().IsZero() {
		t.Errorf("no read time after List")
	}
	mustFold(t, s, commit(nil, add("a", 0, 100)))
	if got := lookup(t, v, store.Key{Counter: "a", Shard: 0})[0].Count; got != of(11) {
		t.Errorf("a view that began with List: got %d, want 11", got)
	}
}

func sumView(t testing.TB, v store.View, counter string, n int) int64 {
	t.Helper()
	keys := make([]store.Key, n)
	for i := range keys {
		keys[i] = store.Key{Counter: counter, Shard: i}
	}
	var total int64
	for _, value := range lookup(t, v, keys...) {
		total += small(t, value.Count)
	}
	return total
}

func testLookupOfManyKeys(t *testing.T, su *suite) {
	s := su.open(t)
	grow(t, s, store.Growth{Counter: "a", Shards: 999})
	mustFold(t, s, commit(nil, add("a", 0, 1), add("a", 998, 2)))
	keys := make([]store.Key, 5001) // more than any engine reads at once
	for i := range keys {
		keys[i] = store.Key{Counter: "a", Shard: i - 1}
	}
	v := s.View()
	defer v.Close()
	for i, got := range lookup(t, v, keys...) {
		want := map[int]store.Value{0: {Exists: true, Shards: 999}, 1: {Exists: true, Count: of(1)}, 999: {Exists: true, Count: of(2)}}[i]
		if got != want {
			t.Errorf("key %v: got %+v, want %+v", keys[i], got, want)
		}
	}
}
