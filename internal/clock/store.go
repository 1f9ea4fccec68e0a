package clock

import (
	"sync"
	"time"
)

// A Store shows the time of a store, learned from the times in its answers. The store's clock decides
// when ids are forgotten and how old totals are: the machine's own may be wrong, or be set while the
// process runs. Its zero value shows the machine's time. All methods are safe
// for concurrent use.
type Store struct {
	// Env is for simulations.
	Env *Env
	// NeverEarly makes the first offset the largest that its call allows, instead of the middle: until
	// a clock is set, Now is then not before the store's time, and no age is underestimated.
	NeverEarly bool

	mu     sync.Mutex
	known  bool
	offset time.Duration // the store's time minus the machine's
	stored time.Time     // the latest time of the store that was learned or shown
	at     time.Time     // the same moment, by the monotonic clock
	asked  time.Time     // when the call of the latest lesson began, by the monotonic clock
	told   time.Time     // the store's time in the latest lesson
}

// A Moment is a moment by the wall clock and by the monotonic clock of the machine.
type Moment struct{ wall, at time.Time }

// Moment returns the present moment. Take it before a call whose answer Learn gets.
func (c *Store) Moment() Moment {
	at := time.Now()
	return Moment{c.Env.At(at), at}
}

// slowest is the longest duration of the call from which the first offset is learned.
const slowest = time.Minute

// Learn learns from a call that began at the moment began, has just ended, and answered the
// store's time stored. A zero stored means that the store uses the machine's clock.
//
// The call proves only that the offset is in a range as wide as its duration. Learn moves the
// offset just into that range. So a slow call moves it little, and the first call teaches nothing
// if it was very slow (Cristian, Probabilistic Clock Synchronization, 1989).
//
// The duration is by the clock that advanced further: the answer may have waited while the
// machine was suspended. Learn ignores an answer with an earlier time if a later call has taught
// already: the store's clock may have been set in between.
func (c *Store) Learn(stored time.Time, began Moment) {
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
		if c.offset = (least + most) / 2; c.NeverEarly {
			c.offset = most
		}
	}
	c.known, c.asked, c.told = true, began.at, stored
	c.offset = min(max(c.offset, least), most)
	c.stored, c.at = ended.Add(c.offset), at
}

// Known reports whether the store's time has been learned.
func (c *Store) Known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// Now returns the store's time: the later of the wall clock's reading and the monotonic clock's.
// The wall clock may have been set back, and the monotonic clock does not run while a machine is
// suspended. Between two lessons the result never goes back.
func (c *Store) Now() time.Time {
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
	c.stored, c.at = now, at // a total that was too old must not become young again
	return now
}

// Skew returns the difference between the machine's clock and the store's at the latest lesson.
func (c *Store) Skew() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset.Abs()
}
