package shards

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A crowd is processes that commit to one counter in turn. An entity of their store takes a write a second, and burst
// at once. A commit that would wait for longer than patience is lost.
type crowd struct {
	burst    int
	patience time.Duration
	most     int

	tally, known []int64         // of each shard; known is the largest number of shards that a committer used
	due          []time.Duration // after which it has caught up with its writes
	record       int             // the shards that the counter's record names
	written      int
}

// commit makes that many commits a second for a minute, and returns the applied ones of the last 15 s.
func (c *crowd) commit(seed uint64, processes int, commits float64) (late int) {
	random := rand.New(rand.NewPCG(seed, 3))
	c.tally, c.known, c.due = make([]int64, c.most), make([]int64, c.most), make([]time.Duration, c.most)
	policies, knows := make([]*Policy, processes), make([]int, processes)
	for i := range policies {
		policies[i], knows[i] = New(Config{Max: c.most, Env: seeded(seed<<16 + uint64(i))}), c.record
	}
	for i, at := 0, time.Duration(0); at < time.Minute; i++ {
		at += time.Duration(2 * random.Float64() / commits * float64(time.Second))
		now := began.Add(at)
		p, n := policies[i%processes], knows[i%processes]
		shard, _ := p.Pick("a", n, now)
		var end End
		if wait := c.due[shard] - at - time.Duration(c.burst-1)*time.Second; wait > c.patience {
			end.Contended = true
			knows[i%processes] = c.record // which is read before the next try
		} else {
			c.due[shard] = max(at, c.due[shard]) + time.Second
			c.tally[shard] = max(c.tally[shard], Floor(now)) + 1
			c.known[shard] = max(c.known[shard], int64(n))
			end.OK, end.Tally, knows[i%processes] = true, c.tally[shard], int(c.known[shard])
			if at > 45*time.Second {
				late++
			}
		}
		if want := p.Done("a", shard, n, end, now); want > n {
			c.record, c.written = max(c.record, want), c.written+1
			knows[i%processes] = c.record
		}
	}
	return late
}

// After a minute a counter has as many shards as its commits need, and at most twice as many, however many processes
// commit. Nearly no commit of the last seconds is lost, and the record is written a few times.
func TestShardsFollowTheLoad(t *testing.T) {
	t.Parallel()
	for processes, commits := range map[int]float64{1: 10, 10: 80, 100: 290} {
		for seed := range uint64(3) {
			c := &crowd{burst: 5, patience: 500 * time.Millisecond, most: 999, record: 1}
			late := float64(c.commit(seed, processes, commits)) / 15
			if n := float64(c.record); n < commits || n > 2*commits || late < 0.9*commits || c.written > 40 {
				t.Errorf("%d processes: %g shards for %g commits a second, of which %.0f are applied; the record was written %d times", processes, n, commits, late, c.written)
			}
		}
	}
}

// A counter that may have no more shards takes what these sustain.
func TestShardsStopAtTheCap(t *testing.T) {
	t.Parallel()
	c := &crowd{burst: 5, patience: 500 * time.Millisecond, most: 32, record: 1}
	if late := c.commit(1, 100, 290); c.record != 32 || late < 30*15 || late > 34*15 {
		t.Errorf("%d shards take %d commits in 15 s, want 32 and 480", c.record, late)
	}
}
