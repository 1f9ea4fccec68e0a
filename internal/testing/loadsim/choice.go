package loadsim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/shards"
)

// A Chooser picks shards for one aggregator. shards.Policy has the promises.
type Chooser interface {
	Pick(counter string, n int, now time.Time) (shard int, ok bool)
	Done(counter string, shard, n int, end shards.End, now time.Time) (want int)
}

// A Choice makes choosers.
type Choice func(s *Setup, random rand.Source) Chooser

// Product is what countmill does.
func Product(s *Setup, random rand.Source) Chooser {
	return shards.New(shards.Config{Rate: s.Store.Rate, Max: s.Max, Env: &clock.Env{Random: random}})
}

// Choices are compared with the product's choice, by name. They never ask for more shards.
var Choices = map[string]Choice{
	"uniform": func(s *Setup, random rand.Source) Chooser {
		return newPlain(random, func(p *plain, l *lanes, n int, _ time.Time) int { return p.random.IntN(n) })
	},
	"older of two": func(s *Setup, random rand.Source) Chooser { return newPlain(random, olderOfTwo) },
	"sticky": func(s *Setup, random rand.Source) Chooser {
		return newPlain(random, func(p *plain, l *lanes, n int, now time.Time) int { return p.sticky(l, n, s.Store.Rate, now) })
	},
}

// plain keeps one process from two commits to one shard, and leaves the choice to a function.
type plain struct {
	random   *rand.Rand
	choose   func(p *plain, l *lanes, n int, now time.Time) int
	counters map[string]*lanes
}

// lanes are a plain chooser's state for one counter.
type lanes struct {
	busy map[int]int // shards that a commit has, and by how many of them it went
	used map[int]time.Time

	hand  []lane // that a sticky chooser keeps to
	next  int
	lost  bool // to contention, the commit before
	last  time.Time
	every float64 // seconds between commits
}

// A lane is a shard that is kept for some commits.
type lane struct{ shard, left int }

func newPlain(random rand.Source, choose func(*plain, *lanes, int, time.Time) int) *plain {
	return &plain{random: rand.New(random), choose: choose, counters: make(map[string]*lanes)}
}

func (p *plain) Pick(counter string, n int, now time.Time) (int, bool) {
	l := p.counters[counter]
	if l == nil {
		l = &lanes{busy: make(map[int]int), used: make(map[int]time.Time)}
		p.counters[counter] = l
	}
	first := p.choose(p, l, n, now)
	for i := range n {
		if shard := (first + i) % n; l.busy[shard] == 0 {
			l.busy[shard], l.used[shard] = n, now
			return shard, true
		}
	}
	return 0, false
}

func (p *plain) Done(counter string, shard, n int, end shards.End, _ time.Time) int {
	l := p.counters[counter]
	delete(l.busy, shard)
	if end.Contended {
		for i := range l.hand {
			if l.hand[i].shard == shard {
				l.hand[i].left = 0
			}
		}
	}
	return n
}

// olderOfTwo draws two shards and takes the shard with the older last use by this process.
func olderOfTwo(p *plain, l *lanes, n int, _ time.Time) int {
	a, b := p.random.IntN(n), p.random.IntN(n)
	if l.used[b].Before(l.used[a]) {
		return b
	}
	return a
}

// keep is for how many commits a sticky chooser keeps a lane.
const keep = 32

// sticky has as many lanes as it takes to use each at half of its rate, in turn, and draws
// another after a while or on contention.
func (p *plain) sticky(l *lanes, n int, rate float64, now time.Time) int {
	if gap := now.Sub(l.last).Seconds(); !l.last.IsZero() && gap > 0 {
		l.every += (1 - math.Exp(-gap/5)) * (gap - l.every)
	}
	l.last = now
	size := 1
	if l.every > 0 {
		size = min(n, int(math.Ceil(2/(l.every*rate))))
	}
	for len(l.hand) < size {
		l.hand = append(l.hand, lane{})
	}
	l.hand = l.hand[:size]
	l.next = (l.next + 1) % size
	at := &l.hand[l.next]
	if at.left == 0 {
		*at = lane{p.random.IntN(n), 1 + p.random.IntN(2*keep)}
	}
	at.left--
	return at.shard
}
