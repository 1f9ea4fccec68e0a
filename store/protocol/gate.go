package protocol

import (
	"context"
	"sync"
)

// A gate lets folds and checks in, and lets none in while settings change. Its waits end with their contexts.
type gate struct {
	mu      sync.Mutex
	inside  int
	closed  chan struct{} // closed when the gate opens again; nil while it is open
	emptied chan struct{} // closed when the last one leaves; nil if nobody waits for that
}

// enter waits until the gate is open, and reports whether it was closed. The caller calls leave.
func (g *gate) enter(ctx context.Context) (waited bool, err error) {
	for ; ; waited = true {
		g.mu.Lock()
		closed := g.closed
		if closed == nil {
			g.inside++
			g.mu.Unlock()
			return waited, nil
		}
		g.mu.Unlock()
		select {
		case <-closed:
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.emptied != nil {
		close(g.emptied)
		g.emptied = nil
	}
}

// close lets nobody in any more, and waits until all have left. The caller opens the gate again.
func (g *gate) close(ctx context.Context) (open func(), err error) {
	for {
		if _, err := g.enter(ctx); err != nil { // another change may be under way
			return nil, err
		}
		g.mu.Lock()
		if g.closed == nil {
			break
		}
		g.mu.Unlock()
		g.leave()
	}
	closed := make(chan struct{})
	g.closed = closed
	var emptied chan struct{}
	if g.inside--; g.inside > 0 {
		emptied = make(chan struct{})
		g.emptied = emptied
	}
	g.mu.Unlock()
	open = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed, g.emptied = nil, nil
		close(closed)
	}
	if emptied != nil {
		select {
		case <-emptied:
		case <-ctx.Done():
			open()
			return nil, ctx.Err()
		}
	}
	return open, nil
}
