// Package storetime tells the time of a store from what its answers say. Ids are
// forgotten, and totals age, by the store's clock: the machine's own may be off, or be set
// while the process runs.
package storetime

import (
	"sync"
	"time"

	"github.com/countmill/countmill/internal/sysenv"
)

// A Clock tells the store's time. Its zero value knows nothing and shows the machine's.
// All methods may be called at once.
type Clock struct {
	// Env is for simulations.
	Env *sysenv.Env

	mu     sync.Mutex
	known  bool
	offset time.Duration // the store's time minus ours
	stored time.Time     // the store's time at the latest lesson, or the latest shown since
	at     time.Time     // that moment, by a clock that nobody sets
	asked  time.Time     // when the call of the latest lesson began, by the same clock
	told   time.Time     // the store's time in its answer
}

// A Moment is one by both clocks of the machine: the wall clock, and one that nobody sets.
type Moment struct{ wall, at time.Time }

// Moment is the one at which a call begins whose answer Learn takes.
func (c *Clock) Moment() Moment {
	at := time.Now()
	return Moment{c.Env.At(at), at}
}

// slowest is the longest that the first call may take from which the store's time is learned.
const slowest = time.Minute

// Learn takes the store's time of a call that began then and has just ended. It moves the
// offset no further than that proves it wrong: a slow call proves little, and
// the first one nothing if it is very slow. How long the call
// took is what passed by the clock that went further: the answer may have been there when
// the machine was suspended, and be read only now. An answer of an earlier time teaches nothing
// once a call that began later has taught: the store's clock may have been set in between. A zero time means that the
// store's clock is the machine's.
func (c *Clock) Learn(stored time.Time, began Moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stored.IsZero() {
		c.known = true
		return
	}
	if began.at.Before(c.asked) && stored.Before(c.told) {
		return
	}
	at := time.Now()
	ended := c.Env.At(at)
	took := max(at.Sub(began.at), ended.Sub(began.wall))
	least, most := stored.Sub(ended), stored.Sub(ended.Add(-took))
	if !c.known {
		if took > slowest {
			return
		}
		c.offset = (least + most) / 2
	}
	c.known, c.asked, c.told = true, began.at, stored
	c.offset = min(max(c.offset, least), most)
	c.stored, c.at = ended.Add(c.offset), at
}

// Known reports whether the store has told its time.
func (c *Clock) Known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// Now is the store's time: the later one of what the wall clock says and of what has
// passed since the latest lesson. The wall clock may have been set back since; the other
// one stands still while a machine is suspended. Between two lessons it never goes back.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now()
	now := c.Env.At(at).Add(c.offset)
	if c.stored.IsZero() {
		return now
	}
	if passed := c.stored.Add(at.Sub(c.at)); passed.After(now) {
		return passed
	}
	c.stored, c.at = now, at // what was too old once is not young again
	return now
}

// Skew is how far the machine's clock was from the store's at the latest lesson.
func (c *Clock) Skew() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset.Abs()
}
