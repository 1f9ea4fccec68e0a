package loadsim

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/countmill/countmill/internal/shards"
)

// DoublingGap is for how long after a raise nobody raises the same record, with doubling.
const DoublingGap = 5 * time.Second

// Doubling makes choosers that double on contention, which docs/adr/002-shards-follow-the-load.md
// compares with the product's. They go by no tally. If a commit is aborted they ask for twice the
// shards of each counter that the process wrote in a third of its last 20 commits, or of the
// commit's only counter. Set Setup.Gap, by which the store refuses a raise too soon after another.
func Doubling(s *Setup, random rand.Source) Chooser { return newDoubling(s, random, walk) }

// DoublingDrawn draws shards at random instead of walking over them.
func DoublingDrawn(s *Setup, random rand.Source) Chooser {
	return newDoubling(s, random, func(p *plain, _ *lanes, n int, _ time.Time) int { return p.random.IntN(n) })
}

// DoublingUpper asks only where the commit's shard is in the upper half, as the product does: below,
// aggregators contend that have not heard of the last raise.
func DoublingUpper(s *Setup, random rand.Source) Chooser {
	d := newDoubling(s, random, walk)
	d.upper = true
	return d
}

type doubling struct {
	*plain
	most   int
	upper  bool
	alone  bool // the commit that ends now wrote one counter
	ended  int  // commits, each counted once, however often it was tried
	recent map[string]recent
}

// recent has a bit for each of the last 32 commits up to number last: whether it wrote the counter.
type recent struct {
	wrote uint32
	last  int
}

// A counter is hot if at least often of the latest commits wrote it.
const (
	latest = 20
	often  = (latest + 2) / 3
)

func newDoubling(s *Setup, random rand.Source, choose func(*plain, *lanes, int, time.Time) int) *doubling {
	return &doubling{plain: newPlain(random, choose), most: s.Max, recent: make(map[string]recent)}
}

// walk goes to the next shard, and starts anywhere after contention.
func walk(p *plain, l *lanes, n int, _ time.Time) int {
	if l.next = (l.next + 1) % n; l.lost {
		l.lost, l.next = false, p.random.IntN(n)
	}
	return l.next
}

// end notes which counters a commit wrote, before Done is called for each. again says that it is
// the end of another try of a commit that end was called for.
func (d *doubling) end(counters []string, again bool) {
	if d.alone = len(counters) == 1; again {
		return
	}
	d.ended++
	for _, c := range counters {
		d.recent[c] = recent{d.shifted(c) | 1, d.ended}
	}
}

// shifted is recent.wrote where the lowest bit is the last commit that ended.
func (d *doubling) shifted(counter string) uint32 {
	r := d.recent[counter]
	return r.wrote << (d.ended - r.last)
}

func (d *doubling) hot(counter string) bool {
	return bits.OnesCount32(d.shifted(counter)&(1<<latest-1)) >= often
}

// Done asks for twice as many shards as the aborted commit went by. It asks for nothing if more are
// known by now: then somebody raised the record meanwhile.
func (d *doubling) Done(counter string, shard, n int, end shards.End, now time.Time) int {
	l := d.counters[counter]
	by := l.busy[shard]
	d.plain.Done(counter, shard, n, end, now)
	if !end.Contended {
		return n
	}
	l.lost = true
	if by < n || d.upper && 2*shard < n-1 || !d.alone && !d.hot(counter) {
		return n
	}
	return max(n, min(2*by, d.most))
}
