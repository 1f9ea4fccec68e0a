package api

import (
	"context"
	"sync"
)

// A gate lets requests through until it is shut, and knows when the last one is done.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside int
	empty  chan struct{} // closed when the gate is shut and nobody is inside
}

func newGate() *gate { return &gate{empty: make(chan struct{})} }

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.checkEmptyLocked()
}

func (g *gate) checkEmptyLocked() {
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// shut lets nobody in any more, waits until everybody has left or ctx ends, and returns
// how many are left. Call it once.
func (g *gate) shut(ctx context.Context) int {
	g.mu.Lock()
	g.closed = true
	g.checkEmptyLocked()
	g.mu.Unlock()
	select {
	case <-g.empty:
		return 0
	case <-ctx.Done():
	}
	return g.count()
}
