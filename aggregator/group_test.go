package aggregator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// indexed returns settings with indexes, each a match and a group, and a rule for the series of each
// pattern.
func indexed(t testing.TB, indexes [][2]string, patterns ...string) store.Settings {
	t.Helper()
	s := store.NewSettings(time.Hour, time.Now())
	change := func(c store.RuleChange) {
		var err error
		if s, err = s.ChangeRules(c, time.Now(), 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, x := range indexes {
		change(store.RuleChange{Index: &store.IndexChange{Step: store.CreateIndex, Index: store.Index{Name: fmt.Sprint("x", i), Match: x[0], Group: x[1]}}})
	}
	for _, p := range patterns {
		change(store.RuleChange{Pattern: p, Keep: store.Retention{Quarters: 24 * time.Hour}})
	}
	return s
}

func withSettings(t testing.TB, s store.Settings, l store.Limits) *Aggregator {
	t.Helper()
	a, err := New(nil, nullStore{l}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	a.settings.Store(&snapshot{Settings: s})
	return a
}

// nested are four indexes of which some counters are in none, in one, or in all.
var nested = [][2]string{
	{"page:{site}:*", "site:{site}"}, {"page:{site}:{country}:*", "country:{country}"}, {"page:s1:*", "first"}, {"page:{site}:{country}:{page}", "p:{page}"},
}

// pageParts are parts with counters of nested, of some minutes; small sums often cancel out.
func pageParts(rng *rand.Rand, n int, now wire.Minute) []*part {
	var pool []string
	for i := range 60 {
		pool = append(pool, []string{
			fmt.Sprint("page:s", i%3, ":c", i%5, ":p", i), fmt.Sprint("page:s", i%4, ":x", i), fmt.Sprint("other", i), fmt.Sprint("page:", i),
		}[i%4])
	}
	parts := make([]*part, n)
	for i := range parts {
		p := &part{marked: true, minute: now - wire.Minute(rng.IntN(3))}
		p.ID[0], p.ID[1] = byte(i>>8), byte(i)
		for _, c := range rng.Perm(len(pool))[:1+rng.IntN(wire.MaxEntries)] {
			p.Entries = append(p.Entries, wire.Entry{Counter: pool[c], Delta: []int64{-1, 1, 5}[rng.IntN(3)]})
		}
		wire.SortEntries(p.Entries)
		parts[i] = p
	}
	return parts
}

// In every commit the sum of a group is the sum of the deltas that are noted as grouped, and each delta
// of a counter is noted for all of its indexes. So a group is complete at every moment.
func TestAGroupGetsWhatIsGrouped(t *testing.T) {
	t.Parallel()
	now := wire.MinuteOf(time.Now())
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 9))
		patterns := [][]string{nil, {"=site:*"}, {"*"}, {"page:*", "=country:*"}}[rng.IntN(4)]
		s := indexed(t, nested[:1+rng.IntN(4)], patterns...)
		parts := pageParts(rng, 1+rng.IntN(30), now)
		if rng.IntN(2) == 0 {
			for _, p := range parts {
				p.minute = now
			}
		}
		c := withSettings(t, s, store.Limits{Keys: 1000, Commits: 1, Shards: 1}).sumsOf(parts)
		checkTally(t, fmt.Sprint("seed ", seed), s, parts, &c)
	}
}

func checkTally(t *testing.T, name string, s store.Settings, parts []*part, c *tally) {
	t.Helper()
	total, byMinute := make(map[string]int64), make(map[string]map[wire.Minute]int64)
	note := func(counter string, minute wire.Minute, delta int64) {
		if total[counter] += delta; byMinute[counter] == nil {
			byMinute[counter] = make(map[wire.Minute]int64)
		}
		byMinute[counter][minute] += delta
	}
	for _, p := range parts {
		for _, e := range p.Entries {
			note(e.Counter, p.minute, e.Delta)
			for i := range s.Rules.Indexes {
				if group, ok := s.Rules.Indexes[i].GroupOf(e.Counter); ok {
					note(group, p.minute, e.Delta)
				}
			}
		}
	}
	added, grouped := make(map[string]int64), make(map[string]int64)
	for i, a := range c.adds {
		if added[a.Counter] = a.Delta; a.Delta != total[a.Counter] || i > 0 && compareAdds(c.adds[i-1], a) >= 0 {
			t.Errorf("%s: add %d is %s%+d behind %s, want %+d in order", name, i, a.Counter, a.Delta, c.adds[max(i-1, 0)].Counter, total[a.Counter])
		}
	}
	for counter, sum := range total {
		if added[counter] != sum {
			t.Errorf("%s: %s gets %d, want %d", name, counter, added[counter], sum)
		}
	}
	for _, g := range c.grouped {
		if !slices.IsSorted(g.Indexes) || len(g.Indexes) != len(slices.Compact(slices.Clone(g.Indexes))) {
			t.Errorf("%s: indexes %d are not in order", name, g.Indexes)
		}
		for i := range s.Rules.Indexes {
			x := &s.Rules.Indexes[i]
			group, ok := x.GroupOf(c.adds[g.Add].Counter)
			if ok != slices.Contains(g.Indexes, x.Number) {
				t.Errorf("%s: %s is grouped by %d, index %d: %t", name, c.adds[g.Add].Counter, g.Indexes, x.Number, ok)
			}
			if ok {
				grouped[group] += c.adds[g.Add].Delta
			}
		}
	}
	for counter, sum := range total {
		if countmill.IsGroup(counter) && grouped[counter] != sum {
			t.Errorf("%s: deltas of %d are noted for %s, which gets %d", name, grouped[counter], counter, sum)
		}
	}
	buckets := make(map[string]map[wire.Minute]int64)
	for _, b := range c.buckets {
		counter := c.adds[b.Add].Counter
		if buckets[counter] == nil {
			buckets[counter] = make(map[wire.Minute]int64)
		}
		buckets[counter][b.Minute] = b.Delta
	}
	for counter, want := range byMinute {
		for minute, sum := range want {
			if got := buckets[counter][minute]; s.Rules.SeriesOf(counter) != nil && got != sum || s.Rules.SeriesOf(counter) == nil && got != 0 {
				t.Errorf("%s: the series of %s gets %d at %d, want %d (under a rule: %t)", name, counter, got, minute, sum, s.Rules.SeriesOf(counter) != nil)
			}
		}
	}
}

// The sums of counters, of groups and of minutes are exact beyond int64, of one minute and of several.
func TestSumsBeyondInt64(t *testing.T) {
	t.Parallel()
	now := wire.MinuteOf(time.Now())
	a := withSettings(t, indexed(t, [][2]string{{"p:*", "all"}}, "p:*", "=all"), store.Limits{Keys: 1000, Commits: 1, Shards: 1})
	for name, deltas := range map[string][]int64{
		"in turn":         {math.MaxInt64, math.MaxInt64, math.MinInt64 + 1, math.MinInt64 + 1, 7},
		"below":           {math.MinInt64 + 1, math.MinInt64 + 1, math.MaxInt64, math.MaxInt64},
		"the largest":     {math.MaxInt64 - 1, 1},
		"too large":       {math.MaxInt64, 1},
		"too small":       {math.MinInt64 + 1, -2},
		"twice too large": {math.MaxInt64, math.MaxInt64, 2},
	} {
		for minutes := wire.Minute(1); minutes <= 2; minutes++ {
			var parts []*part
			var want, inLast int128.Int
			for i, delta := range deltas {
				p := &part{minute: now - wire.Minute(i)%minutes}
				p.Entries = append(p.Entries, wire.Entry{Counter: "p:one", Delta: delta})
				parts, want = append(parts, p), want.Add(int128.Of(delta))
				if p.minute == now {
					inLast = inLast.Add(int128.Of(delta))
				}
			}
			c := a.sumsOf(parts)
			got := make(map[string][2]int128.Int) // total, and of the last minute
			for i := range c.adds {
				got[c.adds[i].Counter] = [2]int128.Int{c.adds[i].Sum()}
			}
			for i := range c.buckets {
				if b := &c.buckets[i]; b.Minute == now {
					counter := c.adds[b.Add].Counter
					got[counter] = [2]int128.Int{got[counter][0], b.Sum()}
				}
			}
			for _, counter := range []string{"p:one", "=all"} {
				if got[counter] != [2]int128.Int{want, inLast} {
					t.Errorf("%s, %d minutes: %s gets %d, want %d and %d in the last minute", name, minutes, counter, got[counter], want, inLast)
				}
			}
		}
	}
}

// A commit has at most as many entities as its job says, and as the store takes, with groups and with
// days of the archive of both.
func TestPackCountsGroups(t *testing.T) {
	t.Parallel()
	most := 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 4))
		patterns := [][]string{nil, {"*"}, {"=site:*"}}[rng.IntN(3)]
		ring := store.Ring{Buckets: 2, Window: time.Hour, Minutes: 7}
		if seed%3 == 0 {
			ring = store.Ring{} // all series are in the archive
		}
		limit := 250 + rng.IntN(150)
		a := withSettings(t, indexed(t, nested[:1+rng.IntN(4)], patterns...), store.Limits{Keys: 1000, Commits: 1, Shards: 1, Entities: limit, Ring: ring})
		parts := pageParts(rng, 1+rng.IntN(80), wire.MinuteOf(time.Now()))
		for _, p := range parts {
			p.minute -= wire.Minute(rng.IntN(3 * store.DayMinutes))
		}
		packed := 0
		for _, j := range pack(parts, limit, a.lateness(), newGrouper(a.Settings().Rules), nil) {
			packed += len(j.parts)
			minutes := make(map[wire.Minute]bool)
			for _, p := range j.parts {
				minutes[p.minute] = true
			}
			if ring.Minutes > 0 && len(minutes) > ring.Minutes {
				t.Errorf("seed %d: a job of %d minutes, at most %d fit", seed, len(minutes), ring.Minutes)
			}
			x := a.sumsOf(j.parts)
			c := store.Commit{Adds: x.adds, Buckets: x.buckets, Archive: j.archive, Markers: make([]store.Marker, len(j.parts))}
			if n := c.Entities(); n > limit || n > j.entities {
				t.Errorf("seed %d: a commit of %d entities, the job says %d, limit %d", seed, n, j.entities, limit)
			} else {
				most = max(most, n)
			}
		}
		if packed != len(parts) {
			t.Errorf("seed %d: %d of %d parts are in jobs", seed, packed, len(parts))
		}
	}
	if most < 200 {
		t.Errorf("the largest commit has %d entities: nothing was packed", most)
	}
}

// Counters in the same groups share one slice, and the slices that are kept for it are bounded.
func TestSetsOfGroupsAreShared(t *testing.T) {
	t.Parallel()
	var g grouper
	for n := range int64(10 * store.MaxIndexes) {
		set := []int64{n, n + 1}
		kept := g.intern(set)
		set[0], set[1] = -1, -1 // the caller's space is used again
		if again := g.intern([]int64{n, n + 1}); &again[0] != &kept[0] || !slices.Equal(kept, []int64{n, n + 1}) {
			t.Fatalf("set %d: got %v, and then %v in another place", n, kept, again)
		}
		if last := max(n-store.MaxIndexes+1, 0); !slices.ContainsFunc(g.sets, func(set []int64) bool { return set[0] == last }) {
			t.Fatalf("after set %d, set %d is not kept", n, last)
		}
		if len(g.sets) > 2*store.MaxIndexes {
			t.Fatalf("%d sets are kept, want at most %d", len(g.sets), 2*store.MaxIndexes)
		}
	}
	if g.intern(nil) != nil {
		t.Error("a counter without groups has a set")
	}
}

// A window of 10,000 counters in 100 groups, from 25 publishers, is packed so that at most four of its
// commits write one group, and groups add at most a twentieth to its entities.
func TestFewCommitsWriteOneGroup(t *testing.T) {
	t.Parallel()
	const publishers, groups, counters = 25, 100, 10_000
	rng := rand.New(rand.NewPCG(1, 1))
	settings := indexed(t, [][2]string{{"page:{site}:*", "site:{site}"}})
	for _, each := range []int{400, 2000, counters} { // counters of one publisher's batch
		entities := [2]int{}
		for n, s := range []store.Settings{store.NewSettings(time.Hour, time.Now()), settings} {
			a := withSettings(t, s, store.Limits{Keys: 1000, Commits: 4, Shards: 1, Entities: 400})
			var parts []*part
			for p := range publishers {
				var entries []wire.Entry
				for _, c := range rng.Perm(counters)[:each] {
					entries = append(entries, wire.Entry{Counter: fmt.Sprintf("page:s%d:/%d", c%groups, c), Delta: 1})
				}
				wire.SortEntries(entries)
				for chunk := range slices.Chunk(entries, wire.MaxEntries) {
					q := &part{Part: wire.Part{Entries: chunk}, marked: true}
					q.ID[0], q.ID[1], q.ID[2] = byte(p), byte(len(parts)), byte(len(parts)>>8)
					parts = append(parts, q)
				}
			}
			writes := make(map[string]int)
			for _, j := range pack(parts, 400, a.lateness(), newGrouper(a.Settings().Rules), nil) {
				x := a.sumsOf(j.parts)
				entities[n] += len(x.adds) + len(j.parts)
				for _, d := range x.adds {
					if countmill.IsGroup(d.Counter) {
						writes[d.Counter]++
					}
				}
			}
			for group, n := range writes {
				if n > 4 {
					t.Errorf("batches of %d counters: %d commits write %s, want 4 at most", each, n, group)
				}
			}
		}
		if t.Logf("batches of %d counters: %d entities, %d with groups", each, entities[0], entities[1]); entities[1]*20 > entities[0]*21 {
			t.Errorf("batches of %d counters: %d entities with groups, %d without", each, entities[1], entities[0])
		}
	}
}
