package aggregator

import (
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/internal/env"
)

// maxSkew is how far the local clock may be from the store's before the aggregator
// says that it is not ready.
const maxSkew = time.Minute

// maxTeach is the longest call that the offset is learnt from.
const maxTeach = 2 * time.Second

// A clock tells the store's time: the local one plus the offset learnt from commits.
// Markers expire by the store's clock, so the horizon has to be judged by it.
type clock struct {
	env    *env.Env
	offset atomic.Int64
}

func (c *clock) now() time.Time { return c.env.Now().Add(time.Duration(c.offset.Load())) }

// learn takes the store's time of a call that has just ended and took that long. A zero
// time means that the store's clock is the local one. The offset is known to half the
// time that the call took, so slow calls teach nothing.
func (c *clock) learn(stored time.Time, took time.Duration) {
	if stored.IsZero() || took > maxTeach {
		return
	}
	c.offset.Store(int64(stored.Sub(c.env.Now().Add(-took / 2))))
}

func (c *clock) skew() time.Duration { return time.Duration(c.offset.Load()).Abs() }
