package aggregator

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
)

func testInflight(cfg Config) *inflight {
	cfg = cfg.withDefaults(store.Limits{Commits: 4, Shards: 1, ShardRate: 1})
	return newInflight(&cfg, time.Now)
}

// A commit that gets no shards takes none from others, not for a moment: a job that waited
// because of it would not be woken.
func TestInflightTakeAllAtOnce(t *testing.T) {
	t.Parallel()
	l := testInflight(Config{})
	if _, ok := l.acquire([]store.ShardDelta{{Counter: "held"}}, []int{1}); !ok {
		t.Fatal("the first commit gets no shard")
	}
	many := make([]store.ShardDelta, 1000)
	ones := make([]int, len(many))
	for i := range many {
		many[i].Counter, ones[i] = fmt.Sprint("c", i), 1
	}
	many[len(many)-1].Counter = "held"
	var rounds atomic.Int64
	var others sync.WaitGroup
	others.Go(func() {
		for rounds.Load() < 200 {
			if _, ok := l.acquire(slices.Clone(many), ones); ok {
				t.Error("two commits on one shard")
			}
			rounds.Add(1)
		}
	})
	for i := 0; rounds.Load() < 200; i++ {
		got, ok := l.acquire([]store.ShardDelta{{Counter: fmt.Sprint("c", i%100)}}, []int{1})
		if !ok {
			t.Errorf("try %d: no shard, although one is free", i)
			break
		}
		l.release(got, answer{})
	}
	others.Wait()
}

// With as many commits as shards, each commit finds the last free shard.
func TestInflightFindTheLastFreeShard(t *testing.T) {
	t.Parallel()
	for range 50 {
		l := testInflight(Config{})
		var got []int
		for range 5 {
			adds := []store.ShardDelta{{Counter: "a"}}
			if _, ok := l.acquire(adds, []int{5}); !ok {
				t.Fatalf("no shard beside %v of 5", got)
			}
			got = append(got, adds[0].Shard)
		}
		if slices.Sort(got); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
			t.Fatalf("shards %v, want each once", got)
		}
	}
}

// The number of shards from a shard only makes the aggregator read the record. Impossible numbers
// are cut, and with fixed numbers of shards the answer is ignored.
func TestInflightHearOfMoreShards(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		told  []store.ShardStats
		err   error
		wants string
	}{
		{1, []store.ShardStats{{Tally: 1, KnownShards: 3}, {Tally: 1, KnownShards: 2}}, nil, "[]"},
		{1, []store.ShardStats{{Tally: 1, KnownShards: 4}, {Tally: 1, KnownShards: 5}}, nil, "[{a 4} {b 5}]"},
		{1, []store.ShardStats{{Tally: 1, KnownShards: 3}, {Tally: 1, KnownShards: 1 << 40}}, nil, "[{b 999}]"},
		{1, nil, nil, "[]"},
		{-1, []store.ShardStats{{Tally: 1, KnownShards: 4}, {Tally: 1, KnownShards: 5}}, nil, "[]"},
		{-1, nil, store.ErrContended, "[]"},
	} {
		l := testInflight(Config{ShardRate: c.rate})
		adds := []store.ShardDelta{{Counter: "a", Hash: 1}, {Counter: "b", Hash: 2}}
		got := taken{adds: adds, known: []int{3, 2}}
		for i := range adds {
			adds[i].Shard, _ = l.policy.Pick(adds[i].Counter, got.known[i], time.Now())
		}
		if wants := fmt.Sprint(l.release(got, answer{asked: true, took: time.Millisecond, err: c.err, told: c.told})); wants != c.wants {
			t.Errorf("rate %v, answer %v: wants %s, want %s", c.rate, c.told, wants, c.wants)
		}
	}
}
