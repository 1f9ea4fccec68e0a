package storetest

import (
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// RunSums runs the tests of store.Boards alone, for a store that has several ways to look at all sums.
func RunSums(t *testing.T, open func(t *testing.T) store.Store) {
	su := &suite{open: open, rounds: 200}
	for _, test := range sumsTests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, su)
		})
	}
}

type suiteTest struct {
	name string
	run  func(t *testing.T, su *suite)
}

var sumsTests = []suiteTest{
	{"SumsAreTotals", testSumsAreTotals},
	{"BoardsBeyondInt64", testBoardsBeyondInt64},
	{"SumsOfGroups", testSumsOfGroups},
	{"SumsOfOldMinutes", testSumsOfOldMinutes},
	{"SumsHideDeletedCounters", testSumsHideDeletedCounters},
	{"SumsEndWithTheirVisitor", testSumsEndWithTheirVisitor},
	{"ChangesAreCounted", testChangesAreCounted},
}

// sumsOf returns all sums of a query by counter.
func sumsOf(t testing.TB, s store.Store, q *store.SumsQuery) (map[string]int64, store.Sums) {
	t.Helper()
	found := make(map[string]int64)
	sums, err := s.Sums(t.Context(), q, func(c *store.CounterSum) error {
		name := string(c.Counter)
		if _, twice := found[name]; twice {
			t.Errorf("%q is visited twice", name)
		}
		if c.Overflow {
			return nil
		}
		found[name] = c.Sum
		return nil
	})
	if err != nil {
		t.Fatalf("Sums: %v", err)
	}
	return found, sums
}

func testSumsAreTotals(t *testing.T, su *suite) {
	s := su.open(t)
	names := append(pagesOf(60), strangers...)
	c := newChurn(t, s, names)
	q := &store.SumsQuery{Index: sites()}
	if got, _ := sumsOf(t, s, q); len(got) != 0 {
		t.Errorf("counters that were never incremented: %v", got)
	}
	for range 4 {
		for range su.rounds {
			c.step()
		}
		want := totalsOf(t, s, pagesOf(60))
		got, sums := sumsOf(t, s, q)
		for name := range want { // a counter that was only grown has no shard
			if _, ok := got[name]; !ok && want[name] == 0 {
				delete(want, name)
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("sums (-totals +sums):\n%s", diff)
		}
		if sums.At.IsZero() || sums.Read < int64(len(got)) {
			t.Errorf("%d sums at %s, %d entities read", len(got), sums.At, sums.Read)
		}
	}
}

// A sum beyond int64 is an overflow, also in a window, and the parts of a sum that fits may be beyond it.
func testBoardsBeyondInt64(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	m := today(t, s)
	fold := func(counter string, shard int, minute wire.Minute, delta int64) {
		grow(t, s, store.Growth{Counter: counter, Shards: 2})
		mustFoldRetrying(t, s, seriesCommit(one(marker()), bucketed{counter, shard, minute, delta}))
	}
	for i := range 3 {
		fold("page:a:over", i%2, m, math.MaxInt64)
		fold("page:a:back", 0, m, math.MaxInt64)
		fold("page:a:back", 1, m+1, -math.MaxInt64)
	}
	fold("page:a:back", 0, m+1, math.MaxInt64)
	fold("page:a:one", 0, m, 1)
	for what, q := range map[string]*store.SumsQuery{"totals": {Index: sites()}, "a window": {Index: sites(), From: m, To: m + 2}} {
		if got, _ := sumsOf(t, s, q); len(got) != 2 || got["page:a:back"] != math.MaxInt64 || got["page:a:one"] != 1 {
			t.Errorf("%s: got %v, want 1, and 2^63-1 that was beyond it", what, got)
		}
	}
}

func testSumsOfGroups(t *testing.T, su *suite) {
	s := su.open(t)
	if s.Limits().Remainders == 0 {
		t.Skip("the store has no indexes")
	}
	x := indexOf(t, changeIndex(t, s, store.CreateIndex, store.Index{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"}), "sites")
	grow(t, s, store.Growth{Counter: "=site:a", Shards: 2}, store.Growth{Counter: "=site:b", Shards: 1}, store.Growth{Counter: "=sites", Shards: 1})
	folded := commit(nil, add("=site:a", 0, 5), add("=site:a", 1, -7), add("=site:b", 0, 3), add("=sites", 0, 100))
	folded.Rules = x.Version
	mustFold(t, s, folded)
	p := store.IndexRange{Index: x.Number, ID: 1, To: 1<<64 - 1}
	if err := s.SwapRanges(t.Context(), nil, []store.IndexRange{p}); err != nil {
		t.Fatal(err)
	}
	q := &store.SumsQuery{Index: x, Groups: true}
	_, before := sumsOf(t, s, q)
	remainders := []store.GroupRemainder{{Group: "=site:b", Remainder: of(40)}, {Group: "=site:c", Remainder: of(8)}, {Group: x.Overflow(), Remainder: of(-1)}}
	if err := s.SetRemainders(t.Context(), &p, remainders); err != nil {
		t.Fatal(err)
	}
	got, _ := sumsOf(t, s, q)
	if diff := gocmp.Diff(map[string]int64{"=site:a": -2, "=site:b": 43, "=site:c": 8, x.Overflow(): -1}, got); diff != "" {
		t.Errorf("sums of groups (-want +got):\n%s", diff)
	}
	if n, known := s.Changes(); known && n == before.Changes {
		t.Error("a group got 40 from a range, and that is no change")
	}
}

// wantSumsOfSeries compares the sums of all counters in some minutes with the series of each.
func wantSumsOfSeries(t *testing.T, s store.Store, names []string, from, to wire.Minute) {
	t.Helper()
	got, _ := sumsOf(t, s, &store.SumsQuery{Index: sites(), From: from, To: to})
	want := make(map[string]int64)
	v := s.View()
	defer v.Close()
	for _, name := range names {
		for _, b := range seriesIn(t, v, name, from, to) {
			want[name] += small(t, b.Sum)
		}
	}
	for name, n := range want {
		if _, ok := got[name]; n == 0 && !ok {
			delete(want, name)
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("sums of the minutes from %d to %d (-want +got):\n%s", from, to, diff)
	}
}

// A window has late minutes, moved minutes, minutes that a fold made anew after a move, and quarter hours,
// of more counters than one call reads.
func testSumsOfOldMinutes(t *testing.T, su *suite) {
	s := su.open(t)
	addRule(t, s, "*", store.Retention{Minutes: time.Hour, Quarters: 400 * day})
	midnight, n := today(t, s), many(s)
	names := pagesOf(60)
	newChurn(t, s, names) // makes their records
	old := midnight - 9*store.DayMinutes
	for lot := range slices.Chunk(names, 5) {
		var deltas []bucketed
		for i, name := range lot {
			deltas = append(deltas, bucketed{name, 0, old, -5}, bucketed{name, 0, old + 16, int64(i + 1)}, bucketed{name, 0, old + 3*store.DayMinutes, 100})
		}
		c := seriesCommit(one(marker()), deltas...)
		c.Archive = archiveOf(t, s)
		mustFoldRetrying(t, s, c)
	}
	sweepSeries(t, s) // joins the old minutes
	moved := names[0]
	for range 2 {
		mustFoldRetrying(t, s, seriesCommit(one(marker()), append(spread(moved, midnight-30, n), bucketed{moved, 1, midnight - 30, 1000})...))
		move(t, s)
	}
	mustFoldRetrying(t, s, seriesCommit(one(marker()), bucketed{moved, 0, midnight - 30, 7}))
	for _, window := range [][2]wire.Minute{
		{old, old + 15}, {old, old + store.DayMinutes}, {old + 1, midnight}, {old, midnight + store.DayMinutes}, {midnight - 30, midnight}, {midnight - 30, allTime}, {midnight, allTime},
	} {
		wantSumsOfSeries(t, s, names, window[0], window[1])
	}
}

// The window of a deleted counter is hidden until the counter counts again.
func testSumsHideDeletedCounters(t *testing.T, su *suite) {
	const name = "page:s1:/1"
	s := seriesStore(t, su)
	day := today(t, s)
	want := func(what string, want map[string]int64) {
		t.Helper()
		got, _ := sumsOf(t, s, &store.SumsQuery{Index: sites(), From: day, To: day + 1})
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("the sums with %s (-want +got):\n%s", what, diff)
		}
	}
	grow(t, s, store.Growth{Counter: name, Shards: 1})
	mustFoldRetrying(t, s, seriesCommit(one(marker()), bucketed{name, 0, day, 5}))
	want("a counter", map[string]int64{name: 5})
	r := resetOf(name, look(t, s, name))
	r.Delete = true
	reset(t, s, r)
	want("a deleted counter", map[string]int64{})
	mustFoldRetrying(t, s, seriesCommit(one(marker()), bucketed{name, 0, day, 1}))
	want("a deleted counter that counts again", map[string]int64{name: 6})
}

func testSumsEndWithTheirVisitor(t *testing.T, su *suite) {
	s := su.open(t)
	c := newChurn(t, s, pagesOf(10))
	mustFoldRetrying(t, s, grouped(commit(one(marker()), add("page:s1:/1", 0, 1), add("page:s2:/2", 0, 1)), c.x))
	enough, n := errors.New("enough"), 0
	_, err := s.Sums(t.Context(), &store.SumsQuery{Index: c.x}, func(*store.CounterSum) error {
		n++
		return enough
	})
	if n != 1 || err == nil {
		t.Errorf("visited %d counters, and the error is %v", n, err)
	}
}

// A change that a look lacks is counted after the look, also if both are under way together. Without a change nothing
// is counted.
func testChangesAreCounted(t *testing.T, su *suite) {
	s := su.open(t)
	if _, known := s.Changes(); !known {
		t.Skip("other processes may change sums too")
	}
	c, q := newChurn(t, s, pagesOf(20)), &store.SumsQuery{Index: sites()}
	for range su.rounds {
		var step sync.WaitGroup
		step.Go(c.step)
		before, sums := sumsOf(t, s, q)
		step.Wait()
		after, later := sumsOf(t, s, q)
		if diff := gocmp.Diff(before, after); later.Changes == sums.Changes && diff != "" {
			t.Fatalf("%d changes, before and after this (-before +after):\n%s", sums.Changes, diff)
		}
		if n, _ := s.Changes(); n != later.Changes {
			t.Fatalf("%d changes after %d, and nothing happened", n, later.Changes)
		}
	}
	const name = "page:s1:/1"
	growth := store.Growth{Counter: name, Shards: 1}
	grow(t, s, growth)
	mustFoldRetrying(t, s, grouped(commit(one(marker()), add(name, 0, 1)), c.x))
	r := resetOf(name, look(t, s, name))
	r.Delete = true
	for _, change := range []func(){func() { reset(t, s, r) }, func() { grow(t, s, growth) }} {
		before, sums := sumsOf(t, s, q)
		change()
		if after, later := sumsOf(t, s, q); later.Changes == sums.Changes || len(after) == len(before) {
			t.Errorf("%d counters and then %d, after a delete and a growth; %d changes and then %d", len(before), len(after), sums.Changes, later.Changes)
		}
	}
}
