package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

// grouped makes the commit one by these indexes: of adds of their counters it counts the deltas as grouped. It
// adds nothing to groups.
func grouped(c *store.Commit, indexes ...*store.Index) *store.Commit {
	for i := range c.Adds {
		g := store.Grouping{Add: i}
		for _, x := range indexes {
			c.Rules = max(c.Rules, x.Version)
			if _, ok := x.GroupOf(c.Adds[i].Counter); ok {
				g.Indexes = append(g.Indexes, x.Number)
			}
		}
		if slices.Sort(g.Indexes); len(g.Indexes) > 0 {
			c.Grouped = append(c.Grouped, g)
		}
	}
	return c
}

// fold1 folds one delta by an index, or without one.
func fold1(t testing.TB, s store.Store, x *store.Index, counter string, shard int, delta int64) {
	t.Helper()
	c := commit(nil, add(counter, shard, delta))
	if x != nil {
		c = grouped(c, x)
	}
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatalf("Fold of %d for shard %d of %q: %v", delta, shard, counter, err)
	}
}

// ungrouped reads a range in pages of limit shards.
func ungrouped(t testing.TB, s store.Store, x *store.Index, p *store.IndexRange, limit int) (remainders []store.Ungrouped, shards int) {
	t.Helper()
	last := p.From
	for from, pages := "", 0; ; pages++ {
		page, err := s.Ungrouped(t.Context(), x, p, from, limit)
		switch {
		case err != nil:
			t.Fatalf("Ungrouped from %q: %v", from, err)
		case page.Shards > limit || len(page.Remainders) > page.Shards:
			t.Errorf("a page of at most %d shards has %d, and %d remainders", limit, page.Shards, len(page.Remainders))
		case page.Shards > 0 && (page.Place < last || page.Place > p.To):
			t.Errorf("a page ends at the place %x, after %x and within %x", page.Place, last, p.To)
		case page.At.IsZero() || pages > 10_000:
			t.Fatalf("page %d of a range: %+v", pages, page)
		}
		if page.Shards > 0 {
			last = page.Place
		}
		shards += page.Shards
		remainders = append(remainders, page.Remainders...)
		if from = page.Next; from == "" {
			return remainders, shards
		}
	}
}

// wantUngrouped compares the sums of a range by counter.
func wantUngrouped(t testing.TB, what string, s store.Store, x *store.Index, p *store.IndexRange, want map[string]int64) {
	t.Helper()
	remainders, _ := ungrouped(t, s, x, p, 1000)
	got := make(map[string]int64)
	for _, u := range remainders {
		got[u.Counter] += small(t, u.Remainder)
	}
	if diff := cmp.Diff(want, got, equateEmpty); diff != "" {
		t.Errorf("%s: ungrouped (-want +got):\n%s", what, diff)
	}
}

// A fold by an index moves the count and not the part of it that no group has.
func testGroupedFolds(t *testing.T, su *suite) {
	s := su.open(t)
	fold1(t, s, nil, "page:a:1", 0, 5)
	fold1(t, s, nil, "page:a:1", 3, -2)
	fold1(t, s, nil, "page:b:1", 0, -9)
	fold1(t, s, nil, "other", 0, 100)
	x, y := createIndex(t, s, "sites"), createIndex(t, s, "twice")
	p, q := allPlaces(x, 1), allPlaces(y, 1)
	want := map[string]int64{"page:a:1": 3, "page:b:1": -9}
	wantUngrouped(t, "before any fold by the index", s, x, &p, want)
	m := marker()
	mustFold(t, s, grouped(commit(one(m), add("page:a:1", 0, 7), add("page:b:1", 0, 20), add("page:c:1", 0, -4), add("=sites:a", 0, 7), add("other", 0, 1)), x, y))
	if _, err := s.Fold(t.Context(), grouped(commit(one(m), add("page:a:1", 0, 1000)), x, y)); !errors.Is(err, store.ErrMarkerExists) {
		t.Errorf("a fold with a marker that exists: %v", err)
	}
	wantUngrouped(t, "after folds by the index", s, x, &p, want)
	wantUngrouped(t, "after folds by both", s, y, &q, want)
	mustFold(t, s, withRules(grouped(commit(nil, add("page:a:1", 0, 1), add("page:a:1", 3, 2), add("page:c:1", 0, 4)), x), y.Version))
	wantUngrouped(t, "after folds by one of them", s, x, &p, want)
	wantUngrouped(t, "after folds by the other", s, y, &q, map[string]int64{"page:a:1": 6, "page:b:1": -9, "page:c:1": 4})
	for counter, want := range map[string]int64{"page:a:1": 13, "page:b:1": 11, "page:c:1": 0, "=sites:a": 7, "other": 101} {
		if got := sum(t, s, counter, 4); got != want {
			t.Errorf("the shards of %q sum to %d, want %d", counter, got, want)
		}
	}
}

// withRules makes the commit one by rules at least as new.
func withRules(c *store.Commit, version int64) *store.Commit {
	c.Rules = max(c.Rules, version)
	return c
}

// Ranges that cover all places have every shard once, in pages of any size and after any split.
func testUngroupedCoversEachShardOnce(t *testing.T, su *suite) {
	s := su.open(t)
	want := make(map[string]int64)
	var adds []store.ShardDelta
	for i, name := range oddNames {
		if counter := "page:" + name; countmill.CheckCounter(counter) == nil {
			for n := range 1 + i%3 {
				adds = append(adds, add(counter, n*n*7, int64(i+1)))
				want[counter] += int64(i + 1)
			}
		}
		adds = append(adds, add(name, 0, 1))
	}
	for some := range slices.Chunk(adds, 20) {
		mustFold(t, s, commit(nil, some...))
	}
	x := indexOf(t, changeIndex(t, s, store.CreateIndex, store.Index{Name: "pages", Match: "page:{x}", Group: "pages"}), "pages")
	mustFold(t, s, withRules(commit(nil, add("=pages", 0, 1000)), x.Version))
	all := allPlaces(x, 1)
	whole, shards := ungrouped(t, s, x, &all, 1000)
	first, err := s.Ungrouped(t.Context(), x, &all, "", 3)
	if err != nil || first.Shards != 3 || first.Next == "" {
		t.Fatalf("a page of 3 shards: %+v, %v", first, err)
	}
	for what, cuts := range map[string][]uint64{
		"one range": nil, "halves": {math.MaxUint64 / 2}, "odd places": {12345, 1<<40 + 17, 1<<63 + 1, math.MaxUint64 - 1},
		"where a page ends": {first.Place}, "before and after a shard": {first.Place - 1, first.Place}, "within a place": {first.Place | math.MaxUint16},
	} {
		for _, limit := range []int{2, 1000} {
			got, read := make(map[string]int64), 0
			from := uint64(0)
			for i, to := range append(slices.Clone(cuts), math.MaxUint64) {
				p := store.IndexRange{Index: x.Number, ID: i + 1, From: from, To: to}
				remainders, n := ungrouped(t, s, x, &p, limit)
				for _, u := range remainders {
					got[u.Counter] += small(t, u.Remainder)
				}
				from, read = to+1, read+n
			}
			if diff := cmp.Diff(want, got); diff != "" || read != shards || len(whole) != shards {
				t.Errorf("%s, pages of %d: %d shards, want %d; sums (-want +got):\n%s", what, limit, read, shards, diff)
			}
		}
	}
	retired := store.IndexRange{Index: x.Number, ID: 1, Retired: true}
	if _, n := ungrouped(t, s, x, &retired, 10); n != 0 {
		t.Errorf("a retired range has %d shards", n)
	}
}

// Counts and grouped parts beyond int64 have exact remainders.
func testUngroupedBeyondInt64(t *testing.T, su *suite) {
	s := su.open(t)
	fold1(t, s, nil, "page:a:1", 0, math.MaxInt64-1)
	fold1(t, s, nil, "page:a:1", 0, 5)
	fold1(t, s, nil, "page:b:1", 0, math.MinInt64+1)
	fold1(t, s, nil, "page:b:1", 0, -5)
	fold1(t, s, nil, "page:c:1", 0, 3)
	x := createIndex(t, s, "sites")
	for range 3 {
		mustFold(t, s, grouped(commit(nil, add("page:c:1", 0, math.MaxInt64)), x))
	}
	p := allPlaces(x, 1)
	remainders, _ := ungrouped(t, s, x, &p, 10)
	got := make(map[string]int128.Int)
	for _, u := range remainders {
		got[u.Counter] = u.Remainder
	}
	want := map[string]int128.Int{"page:a:1": of(math.MaxInt64).Add(of(4)), "page:b:1": of(math.MinInt64).Sub(of(4)), "page:c:1": of(3)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("remainders (-want +got):\n%s", diff)
	}
}

// The grouped part of one index goes, and nothing else of a shard.
func testDropGrouped(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	m := today(t, s)
	x, y := createIndex(t, s, "sites"), createIndex(t, s, "other")
	want := make(map[string]int64)
	for i := range 7 {
		counter := fmt.Sprint("page:a:", i)
		want[counter] = int64(10 + i)
		mustFold(t, s, grouped(seriesCommit(nil, bucketed{counter, i, m, int64(10 + i)}), x, y))
	}
	mustFold(t, s, withRules(commit(nil, add("page", 0, 1), add("=sites:a", 0, 91)), y.Version))
	x = indexOf(t, changeIndex(t, s, store.DeleteIndex, store.Index{Name: "sites"}), "sites")
	p, q := allPlaces(x, 1), allPlaces(y, 1)
	wantUngrouped(t, "before", s, x, &p, nil)
	for round := range 2 {
		for from, pages := "", 0; ; pages++ {
			next, err := s.DropGrouped(t.Context(), x, &p, from, 2)
			if err != nil || pages > 1000 {
				t.Fatalf("DropGrouped, page %d from %q: %v", pages, from, err)
			}
			if from = next; from == "" {
				break
			}
		}
		wantUngrouped(t, fmt.Sprint("dropped, round ", round), s, x, &p, want)
		wantUngrouped(t, "of another index", s, y, &q, nil)
	}
	v := s.View()
	defer v.Close()
	for i := range 7 {
		if got := lookup(t, v, store.Key{Counter: fmt.Sprint("page:a:", i), Shard: i})[0]; got.Count != of(int64(10+i)) || got.Bucketed != got.Count {
			t.Errorf("shard %d is %+v, want %d and as much in buckets", i, got, 10+i)
		}
	}
}

// A store with Limits.RefusesOldRules refuses every commit by rules from before an index, also one without
// adds, and applies nothing of it.
func testOldRulesRefused(t *testing.T, su *suite) {
	s := su.open(t)
	if !s.Limits().RefusesOldRules {
		t.Skip("the store's folds cannot be refused")
	}
	old := check(t, s).Settings.Version
	x := createIndex(t, s, "sites")
	refused := func(what string, version int64) {
		t.Helper()
		// Sums that cancel leave no add, and without a marker an empty commit.
		for _, c := range []*store.Commit{commit(nil), commit(nil, add("page:a:1", 0, 1)), commit(one(marker()), add("page:a:1", 0, 1)), commit(one(marker()))} {
			if _, err := s.Fold(t.Context(), withRules(c, version)); !errors.Is(err, store.ErrOutdated) {
				t.Errorf("%s, %d adds: got %v, want ErrOutdated", what, len(c.Adds), err)
			}
			if len(c.Markers) > 0 && len(applied(t, s, c.Markers[0].ID)) > 0 {
				t.Errorf("%s, %d adds: its marker was inserted", what, len(c.Adds))
			}
		}
	}
	refused("rules from before an index", old)
	settled := marker()
	mustFold(t, s, withRules(commit(one(settled)), store.AnyRules))
	if len(applied(t, s, settled.ID)) == 0 {
		t.Error("the marker of a commit that counts nothing was not inserted")
	}
	mustFold(t, s, grouped(commit(nil, add("page:a:1", 0, 2)), x))
	addRule(t, s, "a*", keep)
	mustFold(t, s, grouped(commit(one(marker()), add("page:a:1", 0, 4)), x))
	x = indexOf(t, changeIndex(t, s, store.DeleteIndex, store.Index{Name: "sites"}), "sites")
	refused("rules from before a deletion", x.Version-1)
	mustFold(t, s, withRules(commit(nil, add("page:a:1", 0, 8)), x.Version))
	mustFold(t, s, withRules(commit(nil), x.Version))
	if got := count(t, s, "page:a:1", 0); got != 14 {
		t.Errorf("the count is %d, want 14", got)
	}
}

// The sweep keeps a deleted counter of an index: without its shards the group would lose its increments.
func testSweepKeepsCountersOfIndexes(t *testing.T, su *suite) {
	s := su.open(t)
	for _, name := range []string{"page:a:1", "gone"} {
		grow(t, s, store.Growth{Counter: name, Shards: 1})
		mustFold(t, s, commit(nil, add(name, 0, 5)))
	}
	x := createIndex(t, s, "sites")
	p := allPlaces(x, 1)
	mustFold(t, s, grouped(commit(nil, add("page:a:1", 0, 2)), x))
	for _, name := range []string{"page:a:1", "gone"} {
		d := resetOf(name, look(t, s, name))
		d.Delete = true
		reset(t, s, d)
	}
	sweepAll(t, s, 1)
	checkLook(t, s, "gone", store.Sum{})
	wantUngrouped(t, "after a sweep", s, x, &p, map[string]int64{"page:a:1": 5})
	changeIndex(t, s, store.DeleteIndex, store.Index{Name: "sites"})
	sweepAll(t, s, 0)
	changeIndex(t, s, store.RemoveIndex, store.Index{Name: "sites", Number: x.Number})
	sweepAll(t, s, 1)
	checkLook(t, s, "page:a:1", store.Sum{})
}

// sweepAll sweeps as often as any store needs, and checks how many counters go.
func sweepAll(t testing.TB, s store.Store, want int) {
	t.Helper()
	<-time.After(2 * time.Millisecond) // deleted before the sweep, by any clock
	removed := 0
	for range 5 {
		n, err := s.SweepCounters(t.Context(), time.Microsecond)
		if err != nil {
			t.Fatalf("SweepCounters: %v", err)
		}
		removed += n
	}
	if removed != want {
		t.Errorf("SweepCounters removed %d, want %d", removed, want)
	}
}
