package aggregator

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/shards"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// inflight picks a shard for each add. It never puts one shard into two commits under way: they
// would contend with each other.
type inflight struct {
	env    *clock.Env
	now    func() time.Time // the store's time
	policy *shards.Policy   // nil if there is only one commit at a time, and no growth
	fixed  bool             // counters are not grown

	picking sync.Mutex    // held while one commit picks its shards
	next    string        // the counter that await waits for, or empty
	freed   atomic.Int64  // commits that have released their shards
	woken   chan struct{} // one of them wakes await
}

func newInflight(cfg *Config, now func() time.Time) *inflight {
	f := &inflight{env: cfg.env, now: now, fixed: cfg.ShardRate <= 0, woken: make(chan struct{}, 1)}
	if !f.fixed || cfg.Commits > 1 {
		f.policy = shards.New(shards.Config{
			Rate: max(cfg.ShardRate, 0), Max: cfg.MaxShards, Remember: min(cfg.Remember, mostPicked), Env: cfg.env,
		})
	}
	return f
}

// mostPicked bounds the counters about which more than the record is remembered. Only busy
// counters need that.
const mostPicked = 1 << 16

// A taken has the shards of one commit, in the order of its adds.
type taken struct {
	adds  []store.ShardDelta
	known []int // the number of shards of each add's counter
}

// acquire gives each add a free shard of its counter. It takes all or nothing: false means that
// some counter has no free shard, because a commit under way holds them. An attempt that failed
// here never blocks another one: it would wake nobody.
func (f *inflight) acquire(adds []store.ShardDelta, shards []int) (taken, bool) {
	t := taken{adds: adds, known: shards}
	if f.policy == nil {
		f.draw(t)
		return t, true
	}
	f.picking.Lock()
	defer f.picking.Unlock()
	if f.next != "" && slices.ContainsFunc(adds, func(a store.ShardDelta) bool { return a.Counter == f.next }) {
		return taken{}, false
	}
	now := f.now()
	for i := range adds {
		// Pick a shard that no other commit of this process has.
		shard, ok := f.policy.Pick(adds[i].Counter, shards[i], now)
		if !ok {
			// All or nothing: other commits may wait for the shards that were picked before.
			f.giveBack(taken{adds[:i], shards[:i]}, answer{})
			return taken{}, false
		}
		put(&adds[i], shard)
	}
	return t, true
}

// await is acquire that waits: for one counter after the other, with the shards of those before. No other commit gets a shard of the
// counter that it waits for. So a counter that always has a commit under way keeps it for one commit. One caller at a time: it alone
// waits with shards, so every wait ends.
func (f *inflight) await(adds []store.ShardDelta, shards []int) taken {
	t := taken{adds, shards}
	if f.policy == nil {
		f.draw(t)
		return t
	}
	for i := range adds {
		for !f.pickNext(&adds[i], shards[i]) {
			<-f.woken
		}
	}
	return t
}

// pickNext picks the shard of an add, or reserves the next one of its counter.
func (f *inflight) pickNext(a *store.ShardDelta, shards int) bool {
	f.picking.Lock()
	defer f.picking.Unlock()
	f.next = ""
	shard, ok := f.policy.Pick(a.Counter, shards, f.now())
	if ok {
		put(a, shard)
	} else {
		f.next = a.Counter
	}
	return ok
}

// open is the number of shards in commits under way.
func (f *inflight) open() int64 {
	if f.policy == nil {
		return 0
	}
	return int64(f.policy.Open())
}

// draw picks each shard at random.
func (f *inflight) draw(t taken) {
	for i, n := range t.known {
		if n > 1 {
			put(&t.adds[i], f.env.IntN(n))
		}
	}
}

// put sets the shard of an add of shard 0. The order of the adds does not depend on it.
func put(a *store.ShardDelta, shard int) {
	a.Shard, a.Hash = shard, wire.SpreadHash(a.Hash, shard)
}

// atLimit returns some of the counters that need more shards than Config.MaxShards.
func (f *inflight) atLimit() []string {
	if f.policy == nil || f.fixed {
		return nil
	}
	full := f.policy.Full(f.now())
	return full[:min(len(full), store.MaxAtLimit)]
}

// An answer is the store's answer to a commit. The zero answer means that the store was not
// asked.
type answer struct {
	asked bool
	took  time.Duration
	err   error
	told  []store.ShardStats
}

// release gives the shards back. It returns the counters that need more shards than their known
// records name.
func (f *inflight) release(t taken, got answer) (wants []store.Growth) {
	if f.policy == nil {
		return nil
	}
	wants = f.giveBack(t, got)
	f.freed.Add(1)
	select {
	case f.woken <- struct{}{}:
	default:
	}
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
