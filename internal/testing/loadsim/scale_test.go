package loadsim

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// one is a million increments a second on one counter.
func one(aggregators int) Load {
	return Load{Increments: 1e6, Counters: 1, Publishers: 100, Aggregators: aggregators}
}

// After a minute a counter has as many shards as its commits need, and at most twice as many, however
// many aggregators commit. It gets them in few steps.
func TestShardsFollowTheLoad(t *testing.T) {
	t.Parallel()
	seeds := uint64(6)
	if testing.Short() {
		seeds = 1
	}
	for _, aggregators := range []int{1, 10, 100, 1000} {
		for seed := range seeds {
			t.Run(fmt.Sprint(aggregators, "/", seed), func(t *testing.T) {
				t.Parallel()
				f := Run(Setup{Load: one(aggregators), Max: 999, Seed: seed})
				if n, need := f.HotShards, f.Needed; n < need || float64(n) > 2.2*float64(need) {
					t.Errorf("%d shards for %.0f commits/s, want %d to %d", n, f.Commits, need, 2*need)
				}
				if f.Behind() || f.Aborted > 0.1 {
					t.Errorf("%.0f of %.0f increments/s are counted, %.1f %% of the commits aborted", f.Counted, f.Published, 100*f.Aborted)
				}
				if f.Raises > 40 {
					t.Errorf("the record was written %d times", f.Raises)
				}
				for i := 1; i < len(f.Grew); i++ {
					if f.Grew[i].Shards <= f.Grew[i-1].Shards {
						t.Errorf("%d shards after %d", f.Grew[i].Shards, f.Grew[i-1].Shards)
					}
				}
			})
		}
	}
}

// If commits wait in the store and hardly any is aborted, the waits alone show that there are too
// few shards.
func TestShardsFollowWhereCommitsWait(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		f := Run(Setup{Load: one(10), Store: Store{Patience: 5 * time.Second}, Max: 999, Seed: seed})
		if f.HotShards < 10 || f.HotShards > 160 {
			t.Errorf("seed %d: %d shards after a minute, where 80 are needed", seed, f.HotShards)
		}
	}
}

// No counter gets more shards than it may have, and everything is counted all the same: waiting
// increments go with the next window.
func TestShardsStopAtTheCap(t *testing.T) {
	t.Parallel()
	f := Run(Setup{Load: one(100), Max: 32})
	if f.HotShards != 32 || f.MostShards != 32 {
		t.Errorf("%d shards, want 32", f.HotShards)
	}
	if f.Commits > 33 {
		t.Errorf("%.1f commits/s on 32 entities that take one each", f.Commits)
	}
	if f.Behind() {
		t.Errorf("%.0f of %.0f increments/s are counted", f.Counted, f.Published)
	}
}

// A run is decided by its seed.
func TestRunIsDeterministic(t *testing.T) {
	t.Parallel()
	s := Setup{Load: Load{Increments: 1e5, Counters: 50, Hot: true, Publishers: 10, Aggregators: 5}, Seed: 3}
	if a, b := fmt.Sprint(Run(s)), fmt.Sprint(Run(s)); a != b {
		t.Errorf("one seed, two runs:\n%s\n%s", a, b)
	}
}

// An entity takes its rate and no more, at any load.
func TestStoreKeepsTheRate(t *testing.T) {
	t.Parallel()
	s := Setup{Load: Load{Counters: 2}, Store: Store{Rate: 2, Burst: 3, Patience: time.Second}}.withDefaults()
	st := newStore(&s, 1)
	applied, waited := 0, time.Duration(0)
	for at := time.Duration(0); at < 10*time.Second; at += 10 * time.Millisecond {
		adds := []add{{counter: 0}, {counter: 1}}
		took, ok := st.commit(adds, 2, at)
		if ok {
			applied++
			waited = max(waited, took)
		}
	}
	// 3 at once, 2 waiting for a second, and 2 a second.
	if applied < 23 || applied > 26 {
		t.Errorf("%d commits in 10 s, want 25", applied)
	}
	if waited < time.Second || waited > 1100*time.Millisecond {
		t.Errorf("a commit waited for %s, want up to a second", waited)
	}
	if due := st.counters[0][0].due; due != st.counters[1][0].due {
		t.Error("a commit was applied to one of two counters")
	}
}

// A window is cut into commits without loss. They are about as large as allowed, and hold counters
// that are drawn.
func TestCutLosesNothing(t *testing.T) {
	t.Parallel()
	for _, l := range []Load{
		{Increments: 1e6, Counters: 1, Publishers: 10}, {Increments: 1e6, Counters: 100, Publishers: 100, Hot: true},
		{Increments: 1e6, Counters: 10_000, Publishers: 100}, {Increments: 1e4, Counters: 10_000, Publishers: 100},
		{Increments: 1e5, Counters: 3000, Publishers: 10, Zipf: true}, {Increments: 1e5, Counters: 3000, Publishers: 10, Zipf: true, Groups: 20},
		{Increments: 1e4, Counters: 3000, Publishers: 100, Zipf: true, Groups: 1000},
	} {
		w := newWorld(Setup{Load: l})
		for _, messages := range []int{1, 3, 50, 700} {
			sum, entities := 0.0, 0
			for _, j := range w.cut(make([]time.Duration, messages), w.random) {
				for _, lot := range j.lots {
					sum += lot.weight * float64(len(lot.sealed))
				}
				entities = max(entities, j.parts+len(j.adds))
			}
			if want := w.perMessage() * float64(messages); math.Abs(sum-want) > 0.001*want {
				t.Errorf("%+v: %.0f of %.0f increments in the commits of %d messages", l, sum, want, messages)
			}
			if entities > w.Entities+w.Entities/6 {
				t.Errorf("%+v: %d entities in a commit of %d messages", l, entities, messages)
			}
		}
	}
}

// If nothing contends it makes as many writes as the real publishers and aggregators in
// docs/evidence/benchmarks.md ("What it costs a database"), whose store and bus have these latencies.
func TestWritesWhatTheRolesWrite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ counters, groups, publishers, aggregators, writes int }{
		{1, 0, 10, 1, 487}, {1, 0, 10, 2, 548}, {1, 0, 10, 4, 622}, {100, 0, 10, 1, 10_652}, {1000, 0, 10, 1, 101_720}, {10_000, 0, 10, 1, 610_624},
		{10_000, 0, 25, 1, 707_674}, {10_000, 100, 25, 1, 725_240},
	} {
		if testing.Short() && c.counters > 100 {
			continue
		}
		f := Run(Setup{
			Load:  Load{Increments: 1e5, Counters: c.counters, Groups: c.groups, Publishers: c.publishers, Aggregators: c.aggregators},
			Store: Store{Latency: 10 * time.Millisecond, PerEntity: 1}, Bus: 20 * time.Millisecond, Start: 128, Max: 128,
		})
		if ratio := f.Writes / float64(c.writes); ratio < 0.88 || ratio > 1.02 {
			t.Errorf("%d counters, %d groups, %d aggregators: %.0f entities per million, %.2f times those of the roles", c.counters, c.groups, c.aggregators, f.Writes, ratio)
		}
	}
}

// An index with 20 groups for all increments makes groups the hottest counters, which each commit writes. They get the
// shards that they need by themselves, and commits fail or wait hardly more often than without the index.
func TestHotGroups(t *testing.T) {
	t.Parallel()
	of := func(groups int) Figures {
		return Run(Setup{
			Load:   Load{Increments: 1e4, Counters: 300, Zipf: true, Groups: groups, Publishers: 10, Aggregators: 4},
			Warmup: 165 * time.Second,
		})
	}
	f := of(20)
	if f.GroupShards < f.GroupNeeded || f.MostGroupShards > 3*f.GroupNeeded || f.GroupNeeded < 10 {
		t.Errorf("groups have %d shards, and %d at most, want %d to three times as many", f.GroupShards, f.MostGroupShards, f.GroupNeeded)
	}
	if f.Behind() {
		t.Errorf("%.0f of %.0f increments/s are counted", f.Counted, f.Published)
	}
	if testing.Short() {
		return
	}
	without := of(0)
	if f.Aborted > without.Aborted+0.02 || f.Blocked > without.Blocked+0.02 {
		t.Errorf("%.1f %% of the commits are aborted and %.1f %% wait, without an index %.1f %% and %.1f %%", 100*f.Aborted, 100*f.Blocked, 100*without.Aborted, 100*without.Blocked)
	}
	// Nearly each commit writes all groups, so at most 20 more shards.
	if more := (f.Writes - without.Writes) * f.Counted / 1e6 / f.Commits; more < 15 || more > 22 {
		t.Errorf("a commit writes %.1f entities more than without an index, want about 20", more)
	}
}

// Each counter of a commit is in its group, also after the commit was halved.
func TestGroupsFollowTheirCounters(t *testing.T) {
	t.Parallel()
	g := groups{counters: 100, groups: 7}
	var adds []add
	for i := range int32(100) {
		if i%3 == 0 {
			adds = append(adds, add{counter: i})
		}
	}
	all := g.add(adds)
	a, b := g.halve(all)
	for _, half := range [][]add{all, a, b} {
		want := make(map[int32]bool)
		for _, d := range half {
			if int(d.counter) < g.counters {
				want[g.of(d.counter)] = true
			}
		}
		for i, d := range half {
			if i > 0 && half[i-1].counter >= d.counter {
				t.Errorf("%d comes before %d", half[i-1].counter, d.counter)
			}
			if int(d.counter) >= g.counters && !want[d.counter] {
				t.Errorf("group %d has no counter in the commit", d.counter)
			}
			delete(want, d.counter)
		}
		if len(want) > 0 {
			t.Errorf("groups %v are missing", want)
		}
	}
	if counters := len(a) + len(b) - len(all); counters < 0 || counters > 1 {
		t.Errorf("the halves have %d entities of %d", len(a)+len(b), len(all))
	}
	if n := g.reach(1); n != 1 {
		t.Errorf("one counter reaches into %g groups", n)
	}
	if n := g.reach(100); n != 7 {
		t.Errorf("all counters reach into %g groups", n)
	}
}
