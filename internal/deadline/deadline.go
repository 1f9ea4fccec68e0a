// Package deadline bounds calls in time, as context.WithTimeout does, at next to no cost for
// those that are over before they would have to wait.
package deadline

import (
	"context"
	"sync"
	"time"
)

// After is context.WithTimeout that puts its work off: the timer, and the place among the
// parent's children, are made when somebody asks for Done. What is answered out of memory
// never does. Until then Err looks at the clock and at the parent.
//
// The cancel function must be called, as that of context.WithTimeout.
func After(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
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
	real      context.Context // nil until it is needed; then it decides everything
	end       context.CancelFunc
	cancelled bool // before there was a real one
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
	return c.realLocked().Err() // it ends at once, and what it says stays
}

// Value asks the real one where there is one: context.WithCancel finds its parent so, and
// would start a goroutine where it did not.
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
	case c.cancelled: // not WithDeadline: it would say that the time is up, if it is by now
		c.real, c.end = context.WithCancel(c.parent)
		c.end()
	default:
		c.real, c.end = context.WithDeadline(c.parent, c.at)
	}
	return c.real
}
