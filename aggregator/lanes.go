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
type lanes struct {
	env    *sysenv.Env
	now    func() time.Time // the store's
	policy *shards.Policy   // nil where one commit at a time has nobody to contend with
	fixed  bool             // counters keep the numbers of shards that they have

	picking sync.Mutex   // one commit at a time
	freed   atomic.Int64 // commits that gave their shards back
}

func newLanes(cfg *Config, now func() time.Time) *lanes {
	l := &lanes{env: cfg.Env, now: now, fixed: cfg.ShardRate <= 0}
	if !l.fixed || cfg.Commits > 1 {
		l.policy = shards.New(shards.Config{
			Rate: max(cfg.ShardRate, 0), Max: cfg.MaxShards, Remember: min(cfg.Remember, mostPicked), Env: cfg.Env,
		})
	}
	return l
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
func (l *lanes) acquire(adds []store.ShardDelta, shards []int) (taken, bool) {
	t := taken{adds: adds, known: shards}
	if l.policy == nil {
		l.draw(t)
		return t, true
	}
	l.picking.Lock()
	defer l.picking.Unlock()
	now := l.now()
	for i := range adds {
		// A shard that no other commit of this process has.
		shard, ok := l.policy.Pick(adds[i].Counter, shards[i], now)
		if !ok {
			// All or nothing: other commits may wait for the ones before.
			l.giveBack(taken{adds[:i], shards[:i]}, answer{})
			return taken{}, false
		}
		put(&adds[i], shard)
	}
	return t, true
}

// open is how many shards are in commits under way.
func (l *lanes) open() int64 {
	if l.policy == nil {
		return 0
	}
	return int64(l.policy.Open())
}

// draw takes any shard.
func (l *lanes) draw(t taken) {
	for i, n := range t.known {
		if n > 1 {
			put(&t.adds[i], l.env.IntN(n))
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
func (l *lanes) release(t taken, got answer) (wants []store.Growth) {
	if l.policy == nil {
		return nil
	}
	wants = l.giveBack(t, got)
	l.freed.Add(1)
	return wants
}

func (l *lanes) giveBack(t taken, got answer) (wants []store.Growth) {
	now := l.now()
	end := shards.End{Took: got.took, OK: got.asked && got.err == nil, Contended: errors.Is(got.err, store.ErrContended)}
	for i := range t.adds {
		a, known := &t.adds[i], t.known[i]
		if end.Tally = 0; i < len(got.told) {
			end.Tally = got.told[i].Tally
		}
		want := l.policy.Done(a.Counter, a.Shard, known, end, now)
		if i < len(got.told) {
			want = max(want, min(got.told[i].KnownShards, countmill.MaxShards))
		}
		if want > known && !l.fixed {
			wants = append(wants, store.Growth{Counter: a.Counter, Shards: want})
		}
	}
	return wants
}
