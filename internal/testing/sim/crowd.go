package sim

import (
	"github.com/countmill/countmill"
)

const (
	// flood is a counter that is driven beyond int64.
	flood = "flood"
	// swarm is a counter with more increments in one batch than a cell counts in its word.
	swarm = "swarm"
)

// A crowd is increments of one counter that are all the same, too many for a digit each. Its
// total says how many were counted, and not which.
type crowd struct {
	counter  string
	delta    int64
	adds     int           // at once
	each     bool          // everybody comes to rest after each
	sent     int           // at most so many are counted
	durable  int           // at least so many
	unproven map[*proc]int // that no flush has made durable yet
}

// drawCrowd draws a crowd for few schedules: it takes long, and hides what else is wrong.
func (pl *plan) drawCrowd() *crowd {
	rng := pl.rng
	c := &crowd{counter: swarm, delta: 1, adds: 1<<20 + rng.IntN(1000), unproven: make(map[*proc]int)}
	if rng.IntN(150) == 0 {
		return c
	}
	c.counter, c.delta, c.adds, c.each = flood, countmill.MaxDelta, 600, true
	if pl.shape.flood {
		return c
	}
	return nil
}

// is reports whether the counter is the crowd's. A schedule may have none.
func (c *crowd) is(counter string) bool { return c != nil && c.counter == counter }

// take is how many of them a flush is about that begins now.
func (c *crowd) take(p *proc) (n int) {
	if c != nil {
		n, c.unproven[p] = c.unproven[p], 0
	}
	return n
}

// give: the flush has not made them durable. A later one may.
func (c *crowd) give(p *proc, n int) {
	if n > 0 {
		c.unproven[p] += n
	}
}

// prove: the flush has.
func (c *crowd) prove(n int) {
	if n > 0 {
		c.durable += n
	}
}

// overflows reports whether the counter's total may leave int64.
func (c *crowd) overflows(counter string) bool {
	return c.is(counter) && c.counter == flood && c.sent > 1024
}

// inDeadLetters is how many were set aside.
func (c *crowd) inDeadLetters(sums map[string][]int64) (n int64) {
	for _, delta := range sums[c.counter] {
		n += delta / c.delta
	}
	return n
}
