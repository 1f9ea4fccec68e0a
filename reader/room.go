package reader

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/countmill/countmill"
)

// maxKeysAtOnce is the most keys of all look-ups under way. Datastore's answer takes some 2.6 KB of memory for a key.
const maxKeysAtOnce = 32 << 10

// maxKeysWaiting is the most keys of look-ups that wait. More could not have a turn within Timeout of a slow store.
const maxKeysWaiting = 4 * maxKeysAtOnce

// A room bounds the keys that are looked up at once. Look-ups that find it full enter in the order in
// which they came.
type room struct {
	most, mostWaiting int

	mu      sync.Mutex
	used    int
	waiting list.List // of *entrant
	keys    int       // of those
}

// An entrant is a look-up that waits.
type entrant struct {
	keys    int
	entered chan struct{} // closed when it has entered
}

// enter waits until n keys fit, or all are free. Call leave with the keys that it returns. An error matches
// countmill.ErrUnavailable if too many wait, and the error of ctx if that ended first.
func (r *room) enter(ctx context.Context, n int) (keys int, err error) {
	keys = min(n, r.most)
	r.mu.Lock()
	if r.waiting.Len() == 0 && r.used+keys <= r.most {
		r.used += keys
		r.mu.Unlock()
		return keys, nil
	}
	if r.keys+keys > r.mostWaiting {
		waiting := r.keys
		r.mu.Unlock()
		return 0, fmt.Errorf("%w: look-ups of %d keys wait for the store (limit: %d)", countmill.ErrUnavailable, waiting, r.mostWaiting)
	}
	e := &entrant{keys: keys, entered: make(chan struct{})}
	place := r.waiting.PushBack(e)
	r.keys += keys
	r.mu.Unlock()
	select {
	case <-e.entered:
		return keys, nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-e.entered: // meanwhile
		return keys, nil
	default:
	}
	r.waiting.Remove(place)
	r.keys -= keys
	r.admitLocked() // the next one may need fewer keys
	return 0, fmt.Errorf("look-ups of %d keys are under way, and this one got no turn: %w", r.used, ctx.Err())
}

func (r *room) leave(keys int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= keys
	r.admitLocked()
}

// admitLocked lets the first look-ups in, as long as they fit.
func (r *room) admitLocked() {
	for first := r.waiting.Front(); first != nil; first = r.waiting.Front() {
		e := first.Value.(*entrant)
		if r.used+e.keys > r.most {
			return
		}
		r.used += e.keys
		r.keys -= e.keys
		r.waiting.Remove(first)
		close(e.entered)
	}
}
