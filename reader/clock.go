package reader

import (
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/internal/env"
)

// storeClock tells the store's time. Ages are differences to read times, which are the
// store's: on a machine whose clock is 5 s behind, a total 6 s old would pass for one
// of a second.
type storeClock struct {
	env    *env.Env
	offset atomic.Int64 // store's time minus ours, ns
}

func (c *storeClock) now() time.Time {
	return c.env.Now().Add(time.Duration(c.offset.Load()))
}

// learn takes a read time that the store chose between began and ended. It moves the
// offset no further than that proves it wrong: a slow read proves little.
func (c *storeClock) learn(read, began, ended time.Time) {
	least, most := int64(read.Sub(ended)), int64(read.Sub(began))
	c.offset.Store(min(max(c.offset.Load(), least), most))
}
