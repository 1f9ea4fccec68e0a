package shards

import (
	"cmp"
	"sync"
	"time"

	"github.com/countmill/countmill/internal/sysenv"
)

// Start is how many shards a new counter has. Most counters never need more, and a read of one
// then costs two entities; one that does need more has them after some seconds.
const Start = 1

// Config sets up a Policy. The zero value works.
type Config struct {
	// Rate is how many commits a second a shard sustains, the same for all aggregators.
	// Below 0.25 it takes long to tell how busy shards are. Default 1.
	Rate float64
	// Max is the most shards that Done asks for. Default 128.
	Max int
	// Remember bounds the counters about which something is remembered, 200 bytes and the
	// name for each: those that others commit to as well, or that met with contention.
	// Default 65,536.
	Remember int
	// Env is for simulations. Leave it nil.
	Env *sysenv.Env
}

// An End says how a commit to a shard ended. The zero value: it was not made.
type End struct {
	// Took is how long the store took for its answer.
	Took time.Duration
	// OK: it was applied. Contended: the store gave it up because of others.
	OK, Contended bool
	// Tally is the shard's, this commit included; 0 where the store does not say.
	Tally int64
}

// slow is a commit that waited for others, although it was not given up.
const slow = time.Second

// A Policy is safe for concurrent use. Times are the store's, as well as the caller knows it.
type Policy struct {
	cfg Config

	mu   sync.Mutex
	busy map[shardKey]struct{}
	heat memory
}

type shardKey struct {
	counter string
	shard   int
}

// New returns a Policy that remembers nothing yet.
func New(cfg Config) *Policy {
	cfg.Rate = cmp.Or(cfg.Rate, 1)
	cfg.Max = cmp.Or(cfg.Max, 128)
	cfg.Remember = cmp.Or(cfg.Remember, 1<<16)
	return &Policy{cfg: cfg, busy: make(map[shardKey]struct{}), heat: newMemory(cfg.Remember)}
}

// Pick returns a shard below n that no commit of this process has under way, and false if
// there is none. The shard is under way until Done.
func (p *Policy) Pick(counter string, n int, now time.Time) (shard int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := 0
	if n > 1 {
		first = p.firstLocked(counter, n)
	}
	for i := range n {
		shard := (first + i) % n
		l := shardKey{counter, shard}
		if _, ok := p.busy[l]; !ok {
			p.busy[l] = struct{}{}
			return shard, true
		}
	}
	return 0, false
}

// Open is how many shards are under way.
func (p *Policy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.busy)
}

func (p *Policy) firstLocked(counter string, n int) int {
	if h := p.heat.get(counter); h != nil {
		return h.next(n, p.cfg.Rate, p.cfg.Env)
	}
	return p.cfg.Env.IntN(n)
}

// Done gives back the shard that Pick returned, and says how the commit ended. n is how many
// shards the caller went by. Done returns how many the counter should have: n or, where it
// needs more, more.
func (p *Policy) Done(counter string, shard, n int, end End, now time.Time) (want int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, shardKey{counter, shard})
	if !end.OK && !end.Contended {
		return n
	}
	// The epoch is that of when the commit was sent.
	commits, since := readTally(end.Tally, now.Add(-end.Took))
	if ahead(end.Tally, now) {
		end.Tally, commits = 0, 0
	}
	h := p.heat.get(counter)
	if h == nil {
		if end.OK && commits <= 1 {
			return n // cold
		}
		h = p.heat.add(counter)
		// What came before in this epoch may have been all ours: nothing is known of it.
		h.in(end.Tally >> tallyBits)
		h.walked = n * max(commits-1, 0)
	}
	first := h.last.IsZero()
	gap := h.over(n, now)
	h.tries++
	// A slow one has waited for others, or the store is slow, whatever the reason. Such commits
	// are taken for lost up to a quarter of all, where a counter gets 1/busyLosing as many shards
	// as it needs at most, and no more for it.
	waited := end.Took >= slow
	if end.Contended || waited && h.lost < h.tries/4 {
		h.lost++
	}
	if end.Contended || waited {
		h.at = -1
	}
	if !end.OK {
		return n
	}
	if !first {
		h.commits++ // in the time since the one before
	}
	if end.Tally == 0 || !h.in(end.Tally>>tallyBits) {
		return n
	}
	defer h.made()
	if upper := 2*shard >= n-1; !upper {
		return n
	}
	if !first && h.fair(gap) {
		h.saw(commits, since)
	}
	if n >= p.cfg.Max || p.cfg.Env.Float64()*float64(n)*p.cfg.Rate > judges {
		return n
	}
	return max(n, min(h.want(p.cfg.Rate), p.cfg.Max))
}

// judges are how many commits a second, of all aggregators together, are followed by a
// judgement on whether there should be more shards, where these are as busy as they can be. Of
// a thousand judgements one would be wrong, and ten thousand raises would contend for the record.
const judges = 4
