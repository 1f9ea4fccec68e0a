package clock

import (
	"context"
	"sync"
	"time"
)

// Timeout is a context.WithTimeout that delays its work: it starts the timer and registers with the
// parent when Done is first called. A call that is answered from memory never calls Done. Until
// then Err looks at the clock and at the parent.
//
// The caller must call the cancel function, as with context.WithTimeout.
func Timeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	at := time.Now().Add(d)
	if sooner, ok := parent.Deadline(); ok && sooner.Before(at) {
		at = sooner
	}
	c := &ctx{parent: parent, at: at}
	return c, c.cancel
}

type ctx struct {
	parent context.Context
	at     time.Time

	mu        sync.Mutex
	real      context.Context // nil until Done or Err needs it; it then decides everything
	end       context.CancelFunc
	cancelled bool // cancelled before real was made
}

func (c *ctx) Deadline() (time.Time, bool) { return c.at, true }

func (c *ctx) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.realLocked().Done()
}

func (c *ctx) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil && !c.cancelled && c.parent.Err() == nil && time.Now().Before(c.at) {
		return nil
	}
	return c.realLocked().Err() // real has ended too, and its error does not change any more
}

// Value asks real if there is one. context.WithCancel finds its parent by Value, and would start
// a goroutine if it did not find one.
func (c *ctx) Value(key any) any {
	c.mu.Lock()
	from := c.parent
	if c.real != nil {
		from = c.real
	}
	c.mu.Unlock()
	return from.Value(key)
}

func (c *ctx) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelled = true
	if c.real != nil {
		c.end()
	}
}

func (c *ctx) realLocked() context.Context {
	switch {
	case c.real != nil:
	case c.cancelled: // not WithDeadline: its error would be DeadlineExceeded if the time is over by now
		c.real, c.end = context.WithCancel(c.parent)
		c.end()
	default:
		c.real, c.end = context.WithDeadline(c.parent, c.at)
	}
	return c.real
}
