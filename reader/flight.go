package reader

import (
	"context"
	"sync"
	"time"

	"github.com/countmill/countmill/internal/sysenv"
)

// flights lets callers that want the same thing share one read of it. It differs from
// singleflight of golang.org/x/sync in what the reader promises:
//
//   - A caller joins a read only if that began late enough for it. Otherwise
//     get, incr, get could be answered with a read that began before the incr.
//   - A caller whose context ends leaves alone, and the others keep their read.
//   - The last one to leave stops the read and waits for it, so that no read outlives
//     its callers: who has no calls under way can close the store.
type flights[T any] struct {
	env *sysenv.Env

	mu      sync.Mutex
	running map[string]*flight[T] // the newest flight of each key
}

type flight[T any] struct {
	began   time.Time
	cancel  context.CancelFunc
	callers int           // guarded by flights.mu
	done    chan struct{} // closed once val and err are set
	val     T
	err     error
}

// do returns what read returns, or what a read of the same key returns that began at
// oldest or later (shared is then true). read gets a context of its own that keeps the
// values of ctx.
func (g *flights[T]) do(ctx context.Context, key string, oldest time.Time,
	read func(context.Context) (T, error)) (val T, shared bool, err error) {
	f, shared := g.join(ctx, key, oldest, read)
	select {
	case <-f.done:
		return f.val, shared, f.err
	case <-ctx.Done():
	}
	select {
	case <-f.done: // in the same moment
		return f.val, shared, f.err
	default:
		g.leave(key, f)
		return val, shared, ctx.Err()
	}
}

func (g *flights[T]) join(ctx context.Context, key string, oldest time.Time,
	read func(context.Context) (T, error)) (f *flight[T], shared bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.running[key]; f != nil && !f.began.Before(oldest) {
		f.callers++
		return f, true
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f = &flight[T]{began: time.Now(), cancel: cancel, callers: 1, done: make(chan struct{})}
	if g.running == nil {
		g.running = make(map[string]*flight[T])
	}
	g.running[key] = f
	g.env.Go(func() { // its callers wait for it: do, leave
		defer close(f.done)
		defer cancel()
		f.val, f.err = read(own)
		g.forget(key, f)
	})
	return f, false
}

// leave takes a caller off the flight. The last one stops it and waits until it has
// ended; nobody can join it meanwhile, or it would get the others' cancellation.
func (g *flights[T]) leave(key string, f *flight[T]) {
	g.mu.Lock()
	f.callers--
	last := f.callers == 0
	if last && g.running[key] == f {
		delete(g.running, key)
	}
	g.mu.Unlock()
	if last {
		f.cancel()
		<-f.done
	}
}

// len is how many reads can be joined.
func (g *flights[T]) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.running)
}

func (g *flights[T]) forget(key string, f *flight[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running[key] == f { // not the one that was begun later
		delete(g.running, key)
	}
}
