package shards

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/countmill/countmill/internal/clock"
)

var began = time.Unix(1_700_000_000, 0).Truncate(Epoch)

func seeded(seed uint64) *clock.Env { return &clock.Env{Random: rand.NewPCG(seed, 0)} }

// A process never has one shard in two commits, whether it remembers the counter or not.
func TestPickGivesAShardOnce(t *testing.T) {
	t.Parallel()
	for _, hot := range []bool{false, true} {
		for _, n := range []int{1, 2, 7} {
			p := New(Config{})
			if hot {
				shard, _ := p.Pick("a", n, began)
				p.Done("a", shard, n, End{Contended: true}, began)
			}
			seen := make(map[int]bool)
			for range n {
				shard, ok := p.Pick("a", n, began)
				if !ok || shard < 0 || shard >= n || seen[shard] {
					t.Fatalf("of %d shards %d, %v after %v", n, shard, ok, seen)
				}
				seen[shard] = true
			}
			if shard, ok := p.Pick("a", n, began); ok {
				t.Errorf("shard %d of %d although all are under way", shard, n)
			}
			if _, ok := p.Pick("b", 1, began); !ok {
				t.Error("a counter waits for another")
			}
			p.Done("a", n-1, n, End{}, began)
			if shard, ok := p.Pick("a", n, began); !ok || shard != n-1 {
				t.Errorf("shard %d, %v; want the one given back, %d", shard, ok, n-1)
			}
		}
	}
}

// For all answers, Done asks for at least the present number of shards, and for at most Max.
func TestDoneStaysWithinBounds(t *testing.T) {
	t.Parallel()
	raised := 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		most := 1 + random.IntN(40)
		p := New(Config{Max: most, Rate: 0.1 + 3*random.Float64(), Env: seeded(seed)})
		n, now := 1+random.IntN(60), began
		for range 300 {
			now = now.Add(time.Duration(random.Int64N(int64(time.Second))) - 100*time.Millisecond)
			shard, ok := p.Pick("a", n, now)
			if !ok {
				t.Fatal("no shard although none is under way")
			}
			end := End{OK: random.IntN(2) == 0, Took: time.Duration(random.Int64N(int64(2 * time.Second)))}
			end.Contended = !end.OK && random.IntN(4) > 0
			if end.OK {
				end.Tally = Floor(now) + random.Int64N(50)
			}
			want := p.Done("a", shard, n, end, now)
			if want < n || want > max(n, most) {
				t.Fatalf("seed %d: %d shards wanted where there are %d, and Max is %d", seed, want, n, most)
			}
			if want > n {
				raised++
			}
			if n = want; random.IntN(50) == 0 {
				n += random.IntN(3) // another aggregator's raise
			}
		}
	}
	if raised < 100 {
		t.Errorf("%d growths: the test shows nothing", raised)
	}
}

// A counter to which only this process commits is not remembered. Others are remembered up to the
// bound.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	p := New(Config{Remember: 1000})
	commit := func(name string, end End) {
		shard, ok := p.Pick(name, 3, began)
		if !ok {
			t.Fatal("no shard")
		}
		p.Done(name, shard, 3, end, began)
	}
	for i := range 10_000 {
		commit(fmt.Sprint("cold", i), End{OK: true, Tally: Floor(began) + 1})
		commit(fmt.Sprint("untold", i), End{OK: true})
	}
	if n := p.heat.len(); n != 0 || len(p.busy) != 0 {
		t.Errorf("%d counters remembered and %d shards under way, want none", n, len(p.busy))
	}
	for i := range 10_000 {
		commit(fmt.Sprint("busy", i), End{OK: true, Tally: Floor(began) + 2})
		commit(fmt.Sprint("contended", i), End{Contended: true})
		commit("always", End{OK: true, Tally: Floor(began) + 2})
	}
	if n := p.heat.len(); n < 500 || n > 1000 {
		t.Errorf("%d counters remembered, want at most 1000, and no fewer than half of that", n)
	}
	if h := p.heat.get("always"); h == nil || h.tries != 10_000 {
		t.Error("a counter in use was forgotten")
	}
}

// Names are cut from messages, and must not keep the messages in memory.
func TestMemoryHasNamesOfItsOwn(t *testing.T) {
	t.Parallel()
	p := New(Config{Remember: 2})
	message := strings.Repeat("m", 1000)
	for i := range 3 { // also when a name moves to the newer half
		p.Done(message[:5], 0, 1, End{Contended: true}, began)
		p.Done(message[:6+i], 0, 1, End{Contended: true}, began)
	}
	for _, half := range []map[string]*heat{p.heat.newer, p.heat.older} {
		for name := range half {
			if unsafe.StringData(name) == unsafe.StringData(message) {
				t.Errorf("%q is a range of a message", name)
			}
		}
	}
}

// A slow store without contention has enough shards; a tally of a future epoch has no meaning.
func TestNoShardsForASlowStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		took  time.Duration
		ahead time.Duration
		most  int
	}{"slow": {2 * slow, 0, 5}, "a clock was ahead": {50 * time.Millisecond, time.Hour, 4}} {
		for seed := range uint64(20) {
			p, n, now := New(Config{Env: seeded(seed)}), 4, began
			tallies := make([]int64, 64)
			for i := range 600 {
				now = now.Add(500 * time.Millisecond)
				shard, _ := p.Pick("a", n, now)
				tallies[shard] = max(tallies[shard], Floor(now)) + 1
				if c.ahead > 0 && i > 300 {
					tallies[shard] = max(tallies[shard], Floor(now.Add(c.ahead))) + 10
				}
				n = min(p.Done("a", shard, n, End{Took: c.took, OK: true, Tally: tallies[shard]}, now.Add(c.took)), 64)
			}
			if n > c.most {
				t.Errorf("%s: %d shards where 2 commits a second were made to 4, want %d at most", name, n, c.most)
			}
		}
	}
}

// Every shard is drawn as often as every other one, also of a counter that is known to be busy.
func TestPickDrawsAtRandom(t *testing.T) {
	t.Parallel()
	const n, picks = 7, 70_000
	p := New(Config{Env: seeded(1)})
	var drawn, followed [n]int
	last := 0
	for range picks {
		shard, ok := p.Pick("a", n, began)
		if !ok {
			t.Fatal("no shard is free")
		}
		p.Done("a", shard, n, End{OK: true, Tally: 5}, began)
		drawn[shard]++
		followed[(shard-last+n)%n]++
		last = shard
	}
	for i := range n {
		if want := picks / n; min(drawn[i], followed[i]) < want*95/100 || max(drawn[i], followed[i]) > want*105/100 {
			t.Errorf("shard %d was drawn %d times, and %d after another was drawn %d times, want about %d", i, drawn[i], i, followed[i], want)
		}
	}
}

// A counted is a counter to which processes commit at random. Each of them learns of a growth at
// once.
type counted struct {
	random   *rand.Rand
	policies []*Policy
	tallies  []int64
	n        int
	now      time.Time
}

func newCounted(seed uint64, processes int) *counted {
	c := &counted{random: rand.New(rand.NewPCG(seed, 2)), tallies: make([]int64, 1000), n: 1, now: began}
	for i := range processes {
		c.policies = append(c.policies, New(Config{Env: seeded(seed<<8 + uint64(i))}))
	}
	return c
}

// commit makes that many commits a second, by all processes together, for that long.
func (c *counted) commit(commits float64, lasts time.Duration) {
	for end := c.now.Add(lasts); ; {
		c.now = c.now.Add(time.Duration(c.random.ExpFloat64() / commits * float64(time.Second)))
		if c.now.After(end) {
			return
		}
		p := c.policies[c.random.IntN(len(c.policies))]
		shard, _ := p.Pick("a", c.n, c.now)
		c.tallies[shard] = max(c.tallies[shard], Floor(c.now)) + 1
		c.n = p.Done("a", shard, c.n, End{OK: true, Tally: c.tallies[shard]}, c.now)
	}
}

func steady(seed uint64, processes int, commits float64, lasts time.Duration) (n int) {
	c := newCounted(seed, processes)
	c.commit(commits, lasts)
	return c.n
}

// A counter that was quiet for long and gets hot has most of its shards soon.
func TestQuietCounterGetsHot(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 10} {
		for seed := range uint64(20) {
			c := newCounted(seed, processes)
			c.commit(0.5, 5*time.Minute)
			c.commit(10, 30*time.Second)
			if c.n < 7 {
				t.Errorf("%d processes: %d shards half a minute after 0.5 commits a second became 10, want 7 or more", processes, c.n)
			}
		}
	}
}

// Commits that come at random are close together now and then. A counter that needs one shard
// keeps one, whoever commits.
func TestChanceIsNotLoad(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 3, 10, 100} {
		const counters = 300
		sum := 0
		for seed := range uint64(counters) {
			sum += steady(seed, processes, 0.5, 5*time.Minute)
		}
		if mean := float64(sum) / counters; mean > 1.1 {
			t.Errorf("%d processes: %.2f shards on average for 0.5 commits a second, want 1", processes, mean)
		}
	}
}

// An aggregator that is alone with a shard recognises its own commits in the tally, also those
// from before it remembered the counter.
func TestAloneSeesNoOthers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 2))
	for range 100 {
		p, now, tally := New(Config{Max: 1}), began, int64(0)
		for range 50 {
			now = now.Add(time.Duration(random.ExpFloat64() * float64(time.Second)))
			tally = max(tally, Floor(now)) + 1
			shard, _ := p.Pick("a", 1, now)
			p.Done("a", shard, 1, End{OK: true, Tally: tally}, now)
			if h := p.heat.get("a"); h != nil && h.others != 0 {
				t.Fatalf("%g commits of others", h.others)
			}
		}
	}
}

// A counter gets a shard for each commit a second, and up to as many again if many processes commit to it.
func TestShardsOfASteadyLoad(t *testing.T) {
	t.Parallel()
	for _, commits := range []float64{0.2, 0.5, 1.5, 3, 5, 10, 30, 100} {
		for _, processes := range []int{1, 4} {
			const seeds = 20
			sum := 0
			for seed := range uint64(seeds) {
				sum += steady(seed, processes, commits, 2*time.Minute)
			}
			if mean := float64(sum) / seeds; mean < 0.9*commits || mean > 2*commits+1 {
				t.Errorf("%g commits a second, %d processes: %.2f shards", commits, processes, mean)
			}
		}
	}
}

// A counter that loses most of its commits shows little of its load: it grows in large steps.
func TestStepsGrowWithLostCommits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lost float64
		want int
	}{{0, 10}, {0.1, 13}, {0.5, 14}, {0.8, 20}, {0.94, 20}, {0.95, 40}} {
		if got := next(10, 70, 100, c.lost); got != c.want {
			t.Errorf("%g of the tries were lost: %d shards, want %d", c.lost, got, c.want)
		}
	}
}

// The lower shards may be loaded by aggregators that do not know of the upper ones.
func TestOnlyTheUpperHalfCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, last int
		raised      bool
	}{{0, 3, false}, {4, 7, true}} {
		const n = 8
		p := New(Config{Env: seeded(1)})
		want := n
		for i := range 400 {
			now := began.Add(time.Duration(i) * Epoch).Add(2 * time.Second)
			shard, _ := p.Pick("a", n, now)
			tally := Floor(now) + 1
			if shard >= c.first && shard <= c.last {
				tally += 5
			}
			want = max(want, p.Done("a", shard, n, End{OK: true, Tally: tally}, now))
		}
		if raised := want > n; raised != c.raised {
			t.Errorf("shards %d to %d are busy: %d wanted", c.first, c.last, want)
		}
	}
}

// len is the number of remembered counters.
func (m *memory) len() int {
	n := len(m.newer)
	for name := range m.older {
		if m.newer[name] == nil {
			n++
		}
	}
	return n
}

// A counter with Max shards that takes more commits than they sustain is full, and a minute later it is not.
func TestFull(t *testing.T) {
	t.Parallel()
	p := New(Config{Max: 2, Env: seeded(1)})
	now, tallies := began, make(map[shardKey]int64)
	for i := range 200 {
		for _, c := range []struct {
			counter string
			every   int
		}{{"busy", 1}, {"calm", 40}} {
			if i%c.every != 0 {
				continue
			}
			shard, ok := p.Pick(c.counter, 2, now)
			if !ok {
				t.Fatal("no shard is free")
			}
			key := shardKey{c.counter, shard}
			tallies[key] = max(tallies[key], Floor(now)) + 1
			p.Done(c.counter, shard, 2, End{OK: true, Took: time.Millisecond, Tally: tallies[key]}, now)
		}
		now = now.Add(100 * time.Millisecond)
	}
	if got := p.Full(now); len(got) != 1 || got[0] != "busy" {
		t.Errorf("got %q, want busy", got)
	}
	if got := p.Full(now.Add(fullFor + time.Second)); len(got) != 0 {
		t.Errorf("a minute later: got %q", got)
	}
}
