package aggregator_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// embeddedOptions are those of a store that refuses commits by old rules.
var embeddedOptions = protocoltest.Options{Entities: 1 << 20, GrowsInFold: true, CertainOutcome: true}

// index makes a step of the index "sites".
func index(t *testing.T, st *protocoltest.Store, step store.IndexStep) store.Index {
	t.Helper()
	x := store.Index{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"}
	if old := mustCheck(t, st).Settings.Rules.Index(x.Name); old != nil {
		x.Number = old.Number
	}
	s, err := st.ChangeRules(t.Context(), store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
	if err != nil {
		t.Fatal(err)
	}
	if found := s.Rules.Index("sites"); found != nil {
		x = *found
	}
	return x
}

func mustCheck(t *testing.T, st *protocoltest.Store) store.Checked {
	t.Helper()
	checked, err := st.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return checked
}

// Sums that go to an overflow group are counted, each counter once for each commit and minute.
func TestOverflowGroupsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, protocoltest.Options{Entities: 250})
		index(t, st, store.CreateIndex)
		r := run(t, st, aggregator.Config{Linger: -1})
		settle(time.Second)
		check := func(what string, want int64) {
			t.Helper()
			settle(time.Minute)
			if got := r.agg.Stats().Overflowed; got != want {
				t.Errorf("%s: %d sums were added to an overflow group, want %d", what, got, want)
			}
		}
		now := wire.MinuteOf(time.Now())
		r.send(t, at(anonymous(one("page:s1:a", 5), one("other", 5)), now))
		check("valid groups", 0)
		// A group cannot end with a space.
		r.send(t, at(anonymous(one("page:s :a", 5), one("page:s :b", 3), one("page:s1:a", 7)), now))
		check("two counters", 2)
		r.send(t, at(anonymous(one("page:s :a", 1)), now), at(anonymous(one("page:s :a", 1), one("page:s1:a", 1)), now-1))
		check("two minutes", 4)
		st.OnFold(protocoltest.FoldScript(protocoltest.NotApplied))
		r.send(t, at(anonymous(one("page:s :a", 1)), now))
		check("a repeated commit", 5)
		r.want(t, map[string]int64{"page:s :a": 8, "page:s :b": 3, "=overflow:sites": 11, "page:s1:a": 13, "other": 5, "=site:s1": 13})
	})
}

// A store that knows newer rules refuses the commit. The aggregator reads them at once, and counts by
// them within a second.
func TestCommitsByOldRulesAreMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, embeddedOptions)
		r := run(t, st, aggregator.Config{Linger: -1})
		settle(time.Second)
		r.send(t, anonymous(one("page:s1:a", 1)))
		settle(time.Second)
		x := index(t, st, store.CreateIndex)
		before := st.FoldCalls()
		r.send(t, anonymous(one("page:s1:a", 10)))
		settle(time.Second)
		r.want(t, map[string]int64{"page:s1:a": 11, "=site:s1": 10})
		if got := st.FoldCalls() - before; got != 2 || st.Grouped(x.Number)[store.Key{Counter: "page:s1:a"}] != 10 {
			t.Errorf("%d folds, %d grouped, want 2 and 10", got, st.Grouped(x.Number)[store.Key{Counter: "page:s1:a"}])
		}
		index(t, st, store.DeleteIndex)
		r.send(t, anonymous(one("page:s1:a", 100)))
		settle(time.Second)
		r.want(t, map[string]int64{"page:s1:a": 111, "=site:s1": 10})
	})
}

// staleRules answers checks with settings of before.
type staleRules struct {
	*protocoltest.Store
	old    store.Settings
	fresh  atomic.Bool
	checks atomic.Int64
}

func (s *staleRules) Check(ctx context.Context) (store.Checked, error) {
	s.checks.Add(1)
	checked, err := s.Store.Check(ctx)
	if !s.fresh.Load() {
		checked.Settings = s.old
	}
	return checked, err
}

// While checks still answer with old rules, refused commits are tried less and less often. The
// aggregator is ready, as the store answers.
func TestRefusedCommitsDoNotTurnInALoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, embeddedOptions)
		old := &staleRules{Store: st, old: mustCheck(t, st).Settings}
		index(t, st, store.CreateIndex)
		r := runOver(t, st, old, aggregator.Config{Linger: -1})
		settle(time.Second)
		m := r.send(t, anonymous(one("page:s1:a", 1)))
		settle(10 * time.Minute)
		if folds, checks := st.FoldCalls(), old.checks.Load(); folds < 10 || folds > 120 || checks > 250 || acked(m) {
			t.Errorf("%d folds and %d checks in 10 minutes (acknowledged: %t)", folds, checks, acked(m))
		}
		if err := r.agg.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		old.fresh.Store(true)
		settle(time.Minute)
		r.want(t, map[string]int64{"page:s1:a": 1, "=site:s1": 1})
	})
}

// Increments that leave 64 bits together, of a counter or of a group, need no more commits than others. Otherwise one batch of them
// would stop all other callers.
func TestIncrementsBeyondInt64(t *testing.T) {
	for name, o := range map[string]protocoltest.Options{"large commits": embeddedOptions, "small commits": {}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := strict(t, o)
				index(t, st, store.CreateIndex)
				r := run(t, st, aggregator.Config{})
				settle(time.Second)
				var parts []wire.Part
				for range 1001 {
					parts = append(parts, anonymous(one("page:s1:a", 1<<62), one("page:s1:b", 1<<62)), anonymous(one("alone", 1<<62)))
				}
				r.send(t, parts...)
				r.send(t, anonymous(one("other", 1)))
				settle(time.Minute)
				sum := int128.Int{Hi: 1001 >> 2, Lo: 1001 & 3 << 62}
				for counter, want := range map[string]int128.Int{"page:s1:a": sum, "page:s1:b": sum, "alone": sum, "=site:s1": sum.Add(sum), "other": int128.Of(1)} {
					if got := exact(t, st, counter); got != want {
						t.Errorf("%s is %d, want %d", counter, got, want)
					}
				}
				if folds := st.Counts().Folds; folds > 12 || len(r.reasons()) > 0 {
					t.Errorf("%d commits, dead letters %q, want a few commits and no letter", folds, r.reasons())
				}
			})
		})
	}
}

// exact sums the shards of a counter.
func exact(t *testing.T, st *protocoltest.Store, counter string) (sum int128.Int) {
	t.Helper()
	v := st.View()
	defer v.Close()
	for shard := range st.Record(counter).Shards {
		values, err := v.Lookup(t.Context(), []store.Key{{Counter: counter, Shard: shard}})
		if err != nil {
			t.Fatal(err)
		}
		sum = sum.Add(values[0].Count)
	}
	return sum
}

// holdFirstLookup makes the first look-up of markers wait for release: its job is packed by then, and not
// committed.
func holdFirstLookup(st *protocoltest.Store) (release func()) {
	gate := make(chan struct{})
	st.On("get marker", func(n int) protocoltest.Answer {
		if n == 1 {
			<-gate
		}
		return protocoltest.OK
	})
	return func() { close(gate) }
}

// A rule that comes between the packing of a job and its commit makes the commit larger than the store
// takes. The job is halved, and the store sees no such commit.
func TestAJobThatGrowsWithAnIndexIsHalved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, protocoltest.Options{Entities: 60, Shards: 1})
		release := holdFirstLookup(st)
		r := run(t, st, aggregator.Config{CommitTimeout: time.Hour, Linger: time.Second})
		settle(time.Second)
		want := make(map[string]int64)
		for i := range 4 {
			var entries []wire.Entry
			for j := range 12 {
				counter := fmt.Sprintf("page:s%d:%d", 12*i+j, i)
				entries = append(entries, one(counter, 1))
				want[counter], want[fmt.Sprintf("=site:s%d", 12*i+j)] = 1, 1
			}
			r.send(t, anonymous(entries...))
		}
		settle(2 * time.Second)
		index(t, st, store.CreateIndex)
		settle(2 * store.CheckEvery)
		release()
		settle(time.Minute)
		r.want(t, want)
		if c := st.Counts(); c.Folds < 2 {
			t.Errorf("%d commits", c.Folds)
		}
	})
}
