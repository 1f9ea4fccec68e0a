package app

import (
	"context"
	"sync"
)

// A task is work in the background that has to be ended. Its zero value has not begun.
type task struct {
	mu      sync.Mutex
	stopped bool
	cancel  context.CancelFunc
	ended   chan struct{} // nil before it has begun
}

// run does the work until ctx ends or stop is called. It is called once, and does nothing if stop
// came first.
func (t *task) run(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !t.begin(cancel) {
		return nil
	}
	defer close(t.ended)
	return work(ctx)
}

func (t *task) begin(cancel context.CancelFunc) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.cancel, t.ended = cancel, make(chan struct{})
	return true
}

// stop ends the work, now or when it begins.
func (t *task) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	if t.ended != nil {
		t.cancel()
	}
}

// wait reports whether the work ended before ctx. It may never have begun. Call it after stop.
func (t *task) wait(ctx context.Context) bool {
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if ended == nil {
		return true
	}
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}
