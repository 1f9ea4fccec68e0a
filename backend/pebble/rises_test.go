package pebble

import (
	"errors"
	"math"
	"testing"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A fold that is under way at a mark may be in no snapshot that was taken before its end. So it is in every
// rise since then, and in none since a later mark.
func TestRisesUnderWay(t *testing.T) {
	t.Parallel()
	var s rises
	x := store.Index{Number: 7}
	q, groups := &store.SumsQuery{Index: &x}, &store.SumsQuery{Index: &x, Groups: true}
	want := func(what string, got store.Rise, most int64, changed bool) {
		t.Helper()
		if got != (store.Rise{Known: true, Most: most, Changed: changed}) {
			t.Errorf("%s: got %+v, want %d, changed %t", what, got, most, changed)
		}
	}
	want("nothing", s.since(q, s.mark(q)), 0, false)
	fold := raised{{index: 7, sum: fromInt64(5)}}
	before := s.mark(q)
	s.begin(fold)
	during := s.mark(q)
	want("before a fold, seen during it", s.since(q, before), 5, true)
	s.end(fold)
	want("before a fold", s.since(q, before), 5, true)
	want("during a fold", s.since(q, during), 5, true)
	want("after a fold", s.since(q, s.mark(q)), 0, false)
	want("groups", s.since(groups, store.RiseMark{}), 0, false)

	after := s.mark(q)
	large := raised{{index: anyIndex, sum: fromInt64(math.MaxInt64)}}
	for range 3 {
		s.begin(large)
		s.end(large)
	}
	want("beyond int64", s.since(q, after), math.MaxInt64, true)
	want("after that", s.since(q, s.mark(q)), 0, false)
}

func TestRaisedBy(t *testing.T) {
	t.Parallel()
	c := &store.Commit{
		Adds: []store.ShardDelta{
			{Counter: "a", Delta: 5}, {Counter: "b", Delta: -3}, {Counter: "c", Delta: 2}, {Counter: "d"}, {Counter: "=g", Delta: 4}, {Counter: "e", Delta: 100},
		},
		Grouped: []store.Grouping{{Add: 0, Indexes: []int64{1, 2}}, {Add: 1, Indexes: []int64{2}}, {Add: 2, Indexes: []int64{1}}},
		Buckets: []store.BucketDelta{
			{Add: 2, Minute: 1, Delta: 9}, {Add: 2, Minute: 2, Delta: -7}, {Add: 3, Minute: 1, Delta: -6}, {Add: 3, Minute: 2, Delta: 6},
		},
	}
	got := make(map[int64]int128)
	for _, r := range raisedBy(c) {
		got[r.index] = r.sum
	}
	// e is in no index. The minutes of c and d rise by more than their totals.
	for index, want := range map[int64]int64{1: 5 + 9, 2: 5, anyIndex: 6, allGroups: 4} {
		if got[index] != fromInt64(want) || len(got) != 4 {
			t.Errorf("index %d is raised by %+v, want %d; all: %v", index, got[index], want, got)
		}
	}
}

// A commit that was certainly not applied is over.
func TestRisesOfRefusedCommits(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	q := &store.SumsQuery{Index: &store.Index{Number: 7}}
	mark := s.rises.mark(q)
	m := store.Marker{ID: wire.PartID{0x10}}
	for range 2 {
		c := &store.Commit{Markers: []store.Marker{m}, Adds: []store.ShardDelta{add7("page:a:b", 5)}, Grouped: []store.Grouping{{Indexes: []int64{7}}}}
		if _, err := s.Fold(t.Context(), c); err != nil && !errors.Is(err, store.ErrMarkerExists) {
			t.Fatal(err)
		}
	}
	if got := s.Risen(q, mark); got.Most != 5 {
		t.Errorf("one fold and its duplicate: %+v, want 5", got)
	}
	if got := s.Risen(q, s.rises.mark(q)); got.Most != 0 || got.Changed {
		t.Errorf("after both: %+v, want 0", got)
	}
}

func add7(counter string, delta int64) store.ShardDelta {
	return store.NewShardDelta(counter, 0, delta)
}
