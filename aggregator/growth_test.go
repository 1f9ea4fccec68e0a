package aggregator_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// single is a store whose new counters have one shard, as in Datastore.
func single(t *testing.T) *protocoltest.Store { return strict(t, protocoltest.Options{Shards: 1}) }

// hammer sends an increment of "a" every step for that long; each is a commit of its own.
func (r *rig) hammer(t *testing.T, step, long time.Duration) (sent int64) {
	t.Helper()
	for range long / step {
		r.send(t, anonymous(one("a", 1)))
		sent++
		settle(step)
	}
	return sent
}

func shardsOf(t *testing.T, st *protocoltest.Store) int {
	t.Helper()
	n, err := st.Shards(t.Context(), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	return n[0]
}

// used records the shards of commits from now on.
func used(st *protocoltest.Store) (shards func() int) {
	var mu sync.Mutex
	seen := make(map[int]bool)
	st.OnFold(func(_ int, c *store.Commit) protocoltest.Answer {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range c.Adds {
			seen[a.Shard] = true
		}
		return protocoltest.OK
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
}

// drawing is a machine with seeded randomness.
func drawing(seed uint64) *clock.Env { return &clock.Env{Random: rand.NewPCG(seed, 0)} }

// Two aggregators make ten commits a second, and a shard sustains one. They learn of each other
// only from shards. Seeds decide their random choices, because one in some thousand runs ends
// with more than twice the needed shards. They commit in turn: at one moment both could write the
// first record, and use the same shard.
func TestACounterThatIsHotGetsMoreShards(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { hotRun(t, 2*seed) })
		})
	}
}

func hotRun(t *testing.T, seed uint64) {
	st := single(t)
	first, second := run(t, st, clock.With(aggregator.Config{}, drawing(seed))), run(t, st, clock.With(aggregator.Config{}, drawing(seed+1)))
	want := int64(0)
	for range 300 {
		first.send(t, anonymous(one("a", 1)))
		settle(50 * time.Millisecond)
		second.send(t, anonymous(one("a", 2)))
		want += 3
		settle(150 * time.Millisecond)
	}
	settle(time.Minute)
	first.want(t, map[string]int64{"a": want})
	if n := shardsOf(t, st); n < 10 || n > 20 {
		t.Errorf("%d shards after a minute of 10 commits a second, want 10 to 20", n)
	}
	counts, grown := st.Counts(), first.agg.Stats().Grown+second.agg.Stats().Grown
	if grown == 0 || int(grown) != counts.Wrote["record"]-1 || counts.Wrote["record"] > 20 || counts.Read["record"] > 40 {
		t.Errorf("%d growths counted; the store has %+v", grown, counts)
	}
	t.Logf("%d shards, %d records written and %d read for %d commits", shardsOf(t, st), counts.Wrote["record"], counts.Read["record"], counts.Folds)
}

func TestAColdCounterStaysAsItIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := single(t)
		r := run(t, st, aggregator.Config{})
		want := r.hammer(t, 5*time.Second, 10*time.Minute)
		r.want(t, map[string]int64{"a": want})
		if counts := st.Counts(); counts.Wrote["record"] != 1 || counts.Read["record"] != 1 {
			t.Errorf("a commit every 5 s: %+v, want the record written once and read once", counts)
		}
	})
}

func TestShardsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   aggregator.Config
		by    int // hand
		want  int
		store protocoltest.Options
	}{
		"by a setting":     {cfg: aggregator.Config{MaxShards: 3}, want: 3},
		"switched off":     {cfg: aggregator.Config{ShardRate: -1}, want: 1},
		"more by hand":     {cfg: aggregator.Config{MaxShards: 3}, by: 7, want: 7},
		"of another store": {store: protocoltest.Options{GrowsInFold: true}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c.store.Shards = 1
				st := strict(t, c.store)
				if c.by > 0 {
					if err := st.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: c.by}}); err != nil {
						t.Fatal(err)
					}
				}
				r := run(t, st, c.cfg)
				want := r.hammer(t, 150*time.Millisecond, time.Minute)
				r.want(t, map[string]int64{"a": want})
				if n := shardsOf(t, st); n != c.want {
					t.Errorf("%d shards after a minute, want %d", n, c.want)
				}
			})
		})
	}
}

// A growth by one aggregator reaches the others through the shards that they share, within less
// than an hour. They read the record before they use the new number.
func TestMoreShardsAreHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := single(t)
		old := run(t, st, aggregator.Config{})
		old.hammer(t, 10*time.Second, 20*time.Second)
		if err := st.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 4}}); err != nil {
			t.Fatal(err)
		}
		fresh := run(t, st, aggregator.Config{})
		fresh.hammer(t, 10*time.Second, 20*time.Minute) // misses a shard once in 10^15 times
		_ = fresh.finish()
		read := st.Counts().Read["record"]
		old.hammer(t, 10*time.Second, 20*time.Second)
		shards := used(st)
		old.hammer(t, 10*time.Second, 5*time.Minute)
		if n := shards(); n < 2 {
			t.Errorf("%d shards used by one who knew of 1, want up to 4", n)
		}
		if n := st.Counts().Read["record"] - read; n != 1 {
			t.Errorf("%d records read, want 1", n)
		}
	})
}

// Folds go on with the present shards, and the store is not asked all the time.
func TestAFailedGrowthHoldsNothingBack(t *testing.T) {
	for name, answer := range map[string]protocoltest.Answer{
		"lost": protocoltest.UnknownNotApplied, "its answer lost": protocoltest.UnknownApplied, "refused": protocoltest.Refused,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := single(t)
				fails := true
				st.On("write record", func(n int) protocoltest.Answer {
					if n > 1 && fails {
						return answer
					}
					return protocoltest.OK
				})
				r := run(t, st, clock.With(aggregator.Config{}, drawing(1)))
				shards := used(st)
				want := r.hammer(t, 250*time.Millisecond, time.Minute)
				r.want(t, map[string]int64{"a": want})
				if n := shards(); n > 1 && name != "its answer lost" {
					t.Errorf("%d shards used, but no growth was answered", n)
				}
				if calls := st.Calls("write record"); calls > 40 {
					t.Errorf("%d growths in a minute in which none succeeds", calls)
				}
				fails = false
				want += r.hammer(t, 250*time.Millisecond, 2*time.Minute)
				r.want(t, map[string]int64{"a": want})
				if n := shardsOf(t, st); n < 4 || shards() < 4 {
					t.Errorf("%d shards in the end, %d used; want at least 4", n, shards())
				}
			})
		})
	}
}

// A growth whose counter was deleted meanwhile is given up: the shards that it asked for do not exist.
func TestADeletedCounterDoesNotGrow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := single(t)
		deleted := false
		st.On("write record", func(n int) protocoltest.Answer {
			if n > 1 && !deleted {
				return protocoltest.Refused
			}
			return protocoltest.OK
		})
		r := run(t, st, clock.With(aggregator.Config{}, drawing(1)))
		want := r.hammer(t, 250*time.Millisecond, time.Minute)
		view := st.View()
		rows, err := view.Lookup(t.Context(), []store.Key{{Counter: "a", Shard: store.RecordKey}, {Counter: "a"}})
		view.Close()
		if err != nil {
			t.Fatal(err)
		}
		deleted = true
		now := time.Now()
		if _, err := st.ResetCounter(t.Context(), store.ResetRequest{
			ID: wire.ResetID("a", "1"), Counter: "a", Delete: true, At: now, ExpireAt: now.Add(time.Hour),
			Look: store.Sum{Exists: true, Sum: rows[1].Count, ResetState: rows[0].Reset, At: view.ReadTime()},
		}); err != nil {
			t.Fatal(err)
		}
		want += r.hammer(t, 250*time.Millisecond, 20*time.Second)
		r.want(t, map[string]int64{"a": want})
	})
}

// A growth under way does not delay the end, and none begins during a drain.
func TestTheEndDoesNotWaitForMoreShards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := single(t)
		st.On("get record", func(n int) protocoltest.Answer {
			if n > 1 {
				return protocoltest.SlowNotApplied
			}
			return protocoltest.OK
		})
		r := run(t, st, aggregator.Config{CommitTimeout: time.Hour})
		want := r.hammer(t, 250*time.Millisecond, time.Minute)
		if st.Calls("get record") != 2 {
			t.Fatalf("%d look-ups of records, want one under way", st.Calls("get record"))
		}
		began := time.Now()
		if err := r.finish(); err != nil || time.Since(began) > time.Second {
			t.Errorf("ended after %s: %v", time.Since(began), err)
		}
		r.want(t, map[string]int64{"a": want})
	})
}

// A contended commit learns nothing of its shards, so the records are read before it is tried
// again. It stays whole, and markers are not looked up first.
func TestContention(t *testing.T) {
	for name, c := range map[string]struct {
		answers []protocoltest.Answer
		want    []string // parts and shards that a is known to have, for each commit
		reads   int      // of markers
	}{
		"not applied": {[]protocoltest.Answer{protocoltest.ContendedNotApplied, protocoltest.ContendedNotApplied}, []string{"2/1", "2/4", "2/4"}, 0},
		"applied":     {[]protocoltest.Answer{protocoltest.ContendedApplied}, []string{"2/1", "2/4"}, 2},
		"no end of it while it is whole": {slices.Repeat([]protocoltest.Answer{protocoltest.ContendedNotApplied}, 4),
			[]string{"2/1", "2/4", "2/4", "2/4", "1/0", "1/4"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := single(t)
				r := run(t, st, aggregator.Config{Commits: 1})
				r.send(t, anonymous(one("a", 1)))
				settle(2 * time.Minute)
				if err := st.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 4}}); err != nil {
					t.Fatal(err)
				}
				var commits commits
				st.OnFold(commits.watch(c.answers...))
				read := st.Counts().Read["marker"]
				r.send(t, anonymous(one("a", 1)), anonymous(one("b", 1)))
				settle(10 * time.Minute)
				r.want(t, map[string]int64{"a": 2, "b": 1})
				if diff := cmp.Diff(c.want, commits.seen()); diff != "" {
					t.Errorf("parts and shards of a known in each commit (-want +got):\n%s", diff)
				}
				if got := r.agg.Stats().Contended; got != int64(len(c.answers)) {
					t.Errorf("%d commits contended, want %d", got, len(c.answers))
				}
				if got := st.Counts().Read["marker"] - read; got != c.reads {
					t.Errorf("%d markers read, want %d", got, c.reads)
				}
			})
		})
	}
}

// commits notes what folds consist of.
type commits struct {
	mu  sync.Mutex
	all []string
}

func (c *commits) watch(answers ...protocoltest.Answer) func(int, *store.Commit) protocoltest.Answer {
	return func(_ int, commit *store.Commit) protocoltest.Answer {
		c.mu.Lock()
		defer c.mu.Unlock()
		known := 0
		for i, a := range commit.Adds {
			if a.Counter == "a" {
				known = commit.KnownShards[i]
			}
		}
		c.all = append(c.all, fmt.Sprintf("%d/%d", len(commit.Markers), known))
		return protocoltest.Script(answers...)(len(c.all))
	}
}

func (c *commits) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}
