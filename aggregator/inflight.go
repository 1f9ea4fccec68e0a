package aggregator

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/shards"
	"github.com/countmill/countmill/internal/sysenv"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// lanes picks shards and sees to it that this process never has one shard in two
// commits under way: they would only contend with each other.
type inflight struct {
	env    *sysenv.Env
	now    func() time.Time // the store's
	policy *shards.Policy   // nil where one commit at a time has nobody to contend with
	fixed  bool             // counters keep the numbers of shards that they have

	picking sync.Mutex   // one commit at a time
	freed   atomic.Int64 // commits that gave their shards back
}

func newInflight(cfg *Config, now func() time.Time) *inflight {
	f := &inflight{env: cfg.Env, now: now, fixed: cfg.ShardRate <= 0}
	if !f.fixed || cfg.Commits > 1 {
		f.policy = shards.New(shards.Config{
			Rate: max(cfg.ShardRate, 0), Max: cfg.MaxShards, Remember: min(cfg.Remember, mostPicked), Env: cfg.Env,
		})
	}
	return f
}

// mostPicked is about how many counters something is remembered beside their records: those
// that are committed to all the time, which are fewer.
const mostPicked = 1 << 16

// A taken is what the lanes gave to one commit, in the order of its adds.
type taken struct {
	adds  []store.ShardDelta
	known []int // how many shards the counter of each has
}

// acquire gives each add a free shard below its counter's shards and puts the adds in key
// order. It takes all or nothing: false means that some counter has no free shard, because of a
// commit under way. A commit that failed here is never the reason: it would wake nobody.
func (f *inflight) acquire(adds []store.ShardDelta, shards []int) (taken, bool) {
	t := taken{adds: adds, known: shards}
	if f.policy == nil {
		f.draw(t)
		return t, true
	}
	f.picking.Lock()
	defer f.picking.Unlock()
	now := f.now()
	for i := range adds {
		// A shard that no other commit of this process has.
		shard, ok := f.policy.Pick(adds[i].Counter, shards[i], now)
		if !ok {
			// All or nothing: other commits may wait for the ones before.
			f.giveBack(taken{adds[:i], shards[:i]}, answer{})
			return taken{}, false
		}
		put(&adds[i], shard)
	}
	return t, true
}

// open is how many shards are in commits under way.
func (f *inflight) open() int64 {
	if f.policy == nil {
		return 0
	}
	return int64(f.policy.Open())
}

// draw takes any shard.
func (f *inflight) draw(t taken) {
	for i, n := range t.known {
		if n > 1 {
			put(&t.adds[i], f.env.IntN(n))
		}
	}
}

// put changes the shard of an add to shard 0. Its place among the adds stays.
func put(a *store.ShardDelta, shard int) {
	a.Shard, a.Hash = shard, wire.SpreadHash(a.Hash, shard)
}

// An answer is how the store answered a commit; the zero one: it was not asked.
type answer struct {
	asked bool
	took  time.Duration
	err   error
	told  []store.ShardStats
}

// release gives the shards back, and returns the counters that need more of them than their
// records were known to name.
func (f *inflight) release(t taken, got answer) (wants []store.Growth) {
	if f.policy == nil {
		return nil
	}
	wants = f.giveBack(t, got)
	f.freed.Add(1)
	return wants
}

func (f *inflight) giveBack(t taken, got answer) (wants []store.Growth) {
	now := f.now()
	end := shards.End{Took: got.took, OK: got.asked && got.err == nil, Contended: errors.Is(got.err, store.ErrContended)}
	for i := range t.adds {
		a, known := &t.adds[i], t.known[i]
		if end.Tally = 0; i < len(got.told) {
			end.Tally = got.told[i].Tally
		}
		want := f.policy.Done(a.Counter, a.Shard, known, end, now)
		if i < len(got.told) {
			want = max(want, min(got.told[i].KnownShards, countmill.MaxShards))
		}
		if want > known && !f.fixed {
			wants = append(wants, store.Growth{Counter: a.Counter, Shards: want})
		}
	}
	return wants
}
