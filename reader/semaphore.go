package reader

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/fair"
	"github.com/countmill/countmill/store"
)

// maxKeysWaiting is the most keys of reads that wait. More could not have a turn within Timeout of a slow store.
const maxKeysWaiting = 128 << 10

// keenWaiting bounds the waiting keys of a caller, to so many times the free places.
const keenWaiting = 4

// turnKeys is the keys of a caller's turn: those of one call of the store.
const turnKeys = store.LookupKeys

type callerKey struct{}

type caller struct {
	name  string
	since time.Time
}

// WithCaller returns a context for one read of a caller. Callers take turns at the store. Of one caller's reads the one that
// began first is first, or each of many would wait for all others again and again. Callers without a name are one.
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller{name, time.Now()})
}

func callerOf(ctx context.Context) caller {
	by, _ := ctx.Value(callerKey{}).(caller)
	return by
}

// A semaphore bounds the keys that are read at once. A read that finds it full waits in the caller's line, and the lines take
// turns. Reads are cut into calls of the store, so an expensive one waits for its turn again and again.
type semaphore struct {
	most, mostWaiting int

	mu    sync.Mutex
	used  int
	lines fair.Lines // by keys
}

// enter waits until it is the turn of n keys of the caller. Call leave with them. An error matches
// countmill.ErrUnavailable if too many wait, and the error of ctx if that ended first.
func (r *semaphore) enter(ctx context.Context, n int) error {
	by := callerOf(ctx)
	r.mu.Lock()
	if r.lines.Empty() && r.used < r.most {
		r.used += n
		r.mu.Unlock()
		return nil
	}
	if waiting := r.lines.Held(); r.lines.Of(by.name)+n > keenWaiting*(r.mostWaiting-waiting-n) {
		r.mu.Unlock()
		return fmt.Errorf("%w: reads of %d keys wait for the store (limit: %d, and a share of that for each caller)", countmill.ErrUnavailable, waiting, r.mostWaiting)
	}
	w := r.lines.Join(by.name, by.since, n, turnKeys)
	r.mu.Unlock()
	select {
	case <-w.Granted:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.lines.Leave(w) { // its turn came meanwhile
		return nil
	}
	return fmt.Errorf("reads of %d keys are under way, and this one got no turn: %w", r.used, ctx.Err())
}

func (r *semaphore) leave(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	r.admitLocked()
}

// admitLocked lets in those whose turn it is. The last one may have more keys than there is room for.
func (r *semaphore) admitLocked() {
	for !r.lines.Empty() && r.used < r.most {
		w := r.lines.Next(turnKeys)
		r.used += w.Cost
		close(w.Granted)
	}
}
