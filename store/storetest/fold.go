package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// The largest commit has exactly Limits.Entities entities.
func testFoldTakesLimits(t *testing.T, su *suite) {
	s := su.open(t)
	limits := s.Limits()
	if limits.Keys < 1 || limits.Commits < 1 || limits.Shards < 1 || limits.Entities < 0 {
		t.Fatalf("limits %+v make no sense", limits)
	}
	if limits.Entities > 0 && limits.Entities < wire.MaxEntries+1 {
		t.Errorf("limit of %d entities has no room for a part and its marker", limits.Entities)
	}
	entities := limits.Entities
	if entities == 0 {
		entities = 5_000
	}
	markers := make([]store.Marker, entities/(wire.MaxEntries+1))
	ids := make([]wire.PartID, len(markers))
	for i := range markers {
		markers[i] = marker()
		ids[i] = markers[i].ID
	}
	adds := make([]store.ShardDelta, entities-len(markers))
	for i := range adds {
		adds[i] = add(fmt.Sprint("c", i), i%7, int64(i+1))
	}
	c := commit(markers, adds...)
	if c.Entities() != entities {
		t.Fatalf("commit has %d entities, want %d", c.Entities(), entities)
	}
	mustFold(t, s, c)
	for i := range adds {
		if got := count(t, s, fmt.Sprint("c", i), i%7); got != int64(i+1) {
			t.Errorf("counter c%d: got %d, want %d", i, got, i+1)
		}
	}
	if got := applied(t, s, ids...); len(got) != len(ids) {
		t.Errorf("Applied found %d markers, want %d", len(got), len(ids))
	}
}

func testFoldTakesAnyName(t *testing.T, su *suite) {
	s := su.open(t)
	for i, name := range oddNames {
		grow(t, s, store.Growth{Counter: name, Shards: i + 1})
		mustFold(t, s, commit(nil, add(name, 0, int64(i+1)), add(name, i+1, int64(1000+i))))
	}
	v := s.View()
	defer v.Close()
	got := shards(t, s, oddNames...)
	for i, name := range oddNames {
		values := lookup(t, v, store.Key{Counter: name, Shard: store.RecordKey},
			store.Key{Counter: name, Shard: 0}, store.Key{Counter: name, Shard: i + 1})
		want := []store.Value{{Exists: true, Shards: i + 1}, {Exists: true, Count: of(int64(i + 1))}, {Exists: true, Count: of(int64(1000 + i))}}
		if diff := cmp.Diff(want, values); diff != "" {
			t.Errorf("counter %q: record and shards (-want +got):\n%s", name, diff)
		}
		if got[i] != i+1 {
			t.Errorf("counter %q: record names %d shards, want %d", name, got[i], i+1)
		}
	}
}

// A store with a limited rate per shard keeps a tally of each shard's folds. It reports each tally with
// the largest number of shards that their aggregators knew, for applied folds, in the order of the
// adds.
func testFoldReportsShards(t *testing.T, su *suite) {
	s := su.open(t)
	limited := s.Limits().ShardRate > 0
	saying := func(c *store.Commit, known int, tally int64) *store.Commit {
		c.KnownShards, c.Tally = slices.Repeat([]int{known}, len(c.Adds)), tally
		return c
	}
	stats := func(tally int64, known int) store.ShardStats {
		return store.ShardStats{Tally: tally, KnownShards: known}
	}
	m := marker()
	for i, step := range []struct {
		commit *store.Commit
		want   map[string]store.ShardStats // by counter and shard; nil: refused
	}{
		{saying(commit(one(m), add("a", 0, 5), add("b", 3, -7)), 5, 7), map[string]store.ShardStats{"a:0": stats(8, 5), "b:3": stats(8, 5)}},
		{saying(commit(one(m), add("a", 0, 5), add("b", 4, 5)), 9, 9), nil},
		{saying(commit(one(marker()), add("a", 0, -5), add("a", 1, 9), add("b", 4, 1)), 7, 5), map[string]store.ShardStats{"a:0": stats(9, 7), "a:1": stats(6, 7), "b:4": stats(6, 7)}},
		{saying(commit(one(marker()), add("c", 0, 1), add("a", 0, 100), add("b", 3, 1)), 6, 1<<40), map[string]store.ShardStats{"a:0": stats(1<<40+1, 7), "b:3": stats(1<<40+1, 6), "c:0": stats(1<<40+1, 6)}},
		{saying(commit(one(marker())), 999, 3), map[string]store.ShardStats{}},
	} {
		folded, err := s.Fold(t.Context(), step.commit)
		if (err == nil) != (step.want != nil) {
			t.Fatalf("fold %d: %v", i, err)
		}
		if !limited || err != nil {
			if len(folded.Shards) > 0 {
				t.Errorf("fold %d: the shards report %v, want nothing (%v)", i, folded.Shards, err)
			}
			continue
		}
		got := make(map[string]store.ShardStats)
		for j, stats := range folded.Shards {
			got[fmt.Sprintf("%s:%d", step.commit.Adds[j].Counter, step.commit.Adds[j].Shard)] = stats
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("fold %d: reports of the shards (-want +got):\n%s", i, diff)
		}
	}
	if limited {
		testConcurrentFoldsAreNumbered(t, s)
	}
}

// No two folds of a shard get the same number.
func testConcurrentFoldsAreNumbered(t *testing.T, s store.Store) {
	var mu sync.Mutex
	seen := make(map[int64]bool)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				folded, err := s.Fold(t.Context(), commit(nil, add("numbered", 0, 1)))
				if err != nil {
					continue // the outcome is unknown: its number may be missing
				}
				mu.Lock()
				n := folded.Shards[0].Tally
				if n < 1 || seen[n] {
					t.Errorf("a fold got number %d of its shard, which %v folds had got before", n, seen)
				}
				seen[n] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func testMarkerExistsAppliesNothing(t *testing.T, su *suite) {
	s := su.open(t)
	old, fresh := marker(), marker()
	mustFold(t, s, commit(one(old), add("a", 0, 1)))
	again := old
	again.Fingerprint++
	again.Fold++
	for _, markers := range [][]store.Marker{{old}, {again}, {fresh, again}, {again, fresh}} {
		_, err := s.Fold(t.Context(), commit(markers, add("a", 0, 10), add("b", 0, 10)))
		if !errors.Is(err, store.ErrMarkerExists) {
			t.Errorf("Fold with an existing marker: got error %v, want ErrMarkerExists", err)
		}
	}
	if a, b := count(t, s, "a", 0), count(t, s, "b", 0); a != 1 || b != 0 {
		t.Errorf("after refused commits: got a=%d b=%d, want 1 and 0", a, b)
	}
	if diff := cmp.Diff(one(old), applied(t, s, old.ID, fresh.ID), sameMarkers); diff != "" {
		t.Errorf("markers after refused commits (-want +got):\n%s", diff)
	}
	mustFold(t, s, commit(one(fresh), add("b", 0, 10)))
}
