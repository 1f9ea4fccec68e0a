package shards

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countmill/countmill/internal/clock"
)

// Start is the number of shards of a new counter. Most counters never need more, and a read of
// one then costs two entities. A busy counter gets more within seconds.
const Start = 1

// Config sets up a Policy. The zero value works.
type Config struct {
	// Rate is the number of commits a second that a shard sustains. It must be the same for all
	// aggregators. Below 0.25 it takes long to measure the load. Default 1.
	Rate float64
	// Max is the largest number of shards that Done asks for. Default 128.
	Max int
	// Remember bounds the number of remembered counters, at 200 bytes and the name for each. Only
	// counters with contention or with commits of others are remembered. Default 65,536.
	Remember int
	// Env is for simulations. Leave it nil.
	Env *clock.Env
}

// An End is the result of a commit to a shard. The zero End means that no commit was made.
type End struct {
	// Took is the time that the store took to answer.
	Took time.Duration
	// OK is true if the commit was applied, and Contended if it ended with store.ErrContended.
	OK, Contended bool
	// Tally is the shard's tally after this commit; 0 if the store does not report it.
	Tally int64
}

// slow is the duration from which a commit counts as having waited for others.
const slow = time.Second

// A Policy picks shards and decides when counters grow. It is safe for concurrent use. All times
// are the store's, as the caller knows it.
type Policy struct {
	cfg Config

	mu   sync.Mutex
	busy map[shardKey]struct{}
	heat memory
	full map[string]time.Time // counters that need more than Max, and when that was judged last
}

type shardKey struct {
	counter string
	shard   int
}

// New returns a Policy without observations.
func New(cfg Config) *Policy {
	cfg.Rate = cmp.Or(cfg.Rate, 1)
	cfg.Max = cmp.Or(cfg.Max, 128)
	cfg.Remember = cmp.Or(cfg.Remember, 1<<16)
	return &Policy{cfg: cfg, busy: make(map[shardKey]struct{}), full: make(map[string]time.Time), heat: newMemory(cfg.Remember)}
}

// Pick draws a shard from 0 to n-1. If a commit of this process holds it, Pick takes the next one that
// none holds, and returns false if there is none. The caller holds the shard until Done.
func (p *Policy) Pick(counter string, n int, now time.Time) (shard int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.cfg.Env.IntN(n)
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

// Open is the number of shards that commits hold.
func (p *Policy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.busy)
}

// Done gives back a shard from Pick, with the result of the commit. n is the number of shards
// that the caller used. Done returns the number of shards that the counter should have, at least
// n.
func (p *Policy) Done(counter string, shard, n int, end End, now time.Time) (want int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, shardKey{counter, shard})
	if !end.OK && !end.Contended {
		return n
	}
	// The tally's epoch is that of the time at which the commit was sent.
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
		// The commits before in this epoch may all be our own: assume so.
		h.in(end.Tally >> tallyBits)
		h.made = n * max(commits-1, 0)
	}
	first := h.last.IsZero()
	h.over(n, now)
	h.tries++
	// A slow commit has waited for others, or the store is slow. Slow commits count as lost, but
	// for at most a quarter of all commits. With that share a counter grows to at most
	// 1/busyLosing times the shards that it needs.
	waited := end.Took >= slow
	if end.Contended || waited && h.lost < h.tries/4 {
		h.lost++
	}
	if !end.OK {
		return n
	}
	if !first {
		h.commits++ // since the end of the commit before
	}
	if end.Tally == 0 || !h.in(end.Tally>>tallyBits) {
		return n
	}
	defer func() { h.made++ }()
	if upper := 2*shard >= n-1; !upper {
		return n
	}
	if !first {
		h.saw(commits, since)
	}
	if n >= p.cfg.Max {
		p.judgeFullLocked(counter, h.want(p.cfg.Rate) > n, now)
		return n
	}
	if p.cfg.Env.Float64()*float64(n)*p.cfg.Rate > judges {
		return n
	}
	return max(n, min(h.want(p.cfg.Rate), p.cfg.Max))
}

// judgeFullLocked notes whether a counter with Max shards needs more.
func (p *Policy) judgeFullLocked(counter string, full bool, now time.Time) {
	if !full {
		delete(p.full, counter)
	} else if _, known := p.full[counter]; known || len(p.full) < mostFull {
		p.full[strings.Clone(counter)] = now // the name is cut from a message
	}
}

// mostFull bounds the counters that are remembered as full, and fullFor how long each is. Guesses.
const (
	mostFull = 1000
	fullFor  = time.Minute
)

// Full returns the names of counters that have Max shards and lately needed more, in order.
func (p *Policy) Full(now time.Time) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.full, func(_ string, at time.Time) bool { return now.Sub(at) > fullFor })
	return slices.Sorted(maps.Keys(p.full))
}

// judges is the number of commits a second, of all aggregators together, after which the number
// of shards is judged, if all shards are fully busy. More judgements would make more mistakes,
// and many aggregators would grow the same record at once.
const judges = 4
