package reader

import (
	"context"
	"sync"
	"time"

	"github.com/countmill/countmill/internal/clock"
)

// flights lets callers with the same key share one read. It differs from singleflight of
// golang.org/x/sync in three promises:
//
//   - A caller joins a read only if the read began late enough for it. Otherwise the second get
//     of get, increment, get could have the answer of a read that began before the increment.
//   - A caller whose context ends leaves; the other callers keep their read.
//   - The last caller to leave stops the read and waits for its end. So no read outlives its
//     callers, and the store may be closed when no call is under way.
type flights[T any] struct {
	env *clock.Env

	mu      sync.Mutex
	running map[string]*flight[T] // the latest flight of each key
}

type flight[T any] struct {
	began   time.Time
	cancel  context.CancelFunc
	callers int           // protected by flights.mu
	done    chan struct{} // closed once val and err are set
	val     T
	err     error
}

// do returns the result of read, or of a read of the same key that began at oldest or later
// (shared is then true). read gets a context of its own with the values of ctx.
func (g *flights[T]) do(ctx context.Context, key string, oldest time.Time,
	read func(context.Context) (T, error)) (val T, shared bool, err error) {
	f, shared := g.join(ctx, key, oldest, read)
	select {
	case <-f.done:
		return f.val, shared, f.err
	case <-ctx.Done():
	}
	select {
	case <-f.done: // both at the same moment
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
	g.env.Go(func() { // its callers wait for it, in do and leave
		defer close(f.done)
		defer cancel()
		f.val, f.err = read(own)
		g.forget(key, f)
	})
	return f, false
}

// leave removes a caller from the flight. The last caller stops the flight and waits for its end.
// Nobody can join it then: a new caller would get the error of the cancelled read.
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

// len is the number of reads that callers can join.
func (g *flights[T]) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.running)
}

func (g *flights[T]) forget(key string, f *flight[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running[key] == f { // a later flight may have replaced it
		delete(g.running, key)
	}
}
