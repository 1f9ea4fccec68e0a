package reader_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// A lingering store takes some time for each look at all sums, and has those of the time when it began.
type lingering struct {
	*world
	takes atomic.Int64
	other bool // other processes fold too
}

func (l *lingering) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	sums, err := l.world.Sums(ctx, q, visit)
	select {
	case <-time.After(time.Duration(l.takes.Load())):
		return sums, err
	case <-ctx.Done():
		return store.Sums{}, ctx.Err()
	}
}

func (l *lingering) Changes() (n uint64, known bool) {
	n, known = l.world.Changes()
	return n, known && !l.other
}

// best asks for the best counter, and returns how long that took.
func best(ctx context.Context, r *reader.Reader, q reader.TopQuery) (counter string, took time.Duration, err error) {
	began := time.Now()
	top, err := r.Top(ctx, q)
	if len(top.Top) > 0 {
		counter = top.Top[0].Counter
	}
	return counter, time.Since(began), err
}

// wantBest compares the best counter, and the time in which it was found.
func wantBest(t *testing.T, r *reader.Reader, q reader.TopQuery, counter string, took time.Duration) {
	t.Helper()
	if got, after, err := best(t.Context(), r, q); err != nil || got != counter || after != took {
		t.Errorf("got %s after %s, %v; want %s after %s", got, after, err, counter, took)
	}
}

// newStale returns a store whose looks take a second, and a reader whose board is five minutes old: it begins with
// page:a:1, and page:b:1 has more by now.
func newStale(t *testing.T, q reader.TopQuery) (*lingering, *reader.Reader) {
	t.Helper()
	l := &lingering{world: newWorld(t, 1, embedded)}
	l.takes.Store(int64(time.Second))
	r := newTopReader(t, l, reader.Config{})
	time.Sleep(24 * time.Hour)
	l.fold("page:a:1", 5, time.Now())
	wantBest(t, r, q, "page:a:1", time.Second)
	l.overtake("page:b:1", 100)
	return l, r
}

// overtake makes a counter the best one, five minutes after the last look.
func (l *lingering) overtake(counter string, delta int64) {
	time.Sleep(5 * time.Minute)
	l.fold(counter, delta, time.Now())
}

// Where a look takes long, callers get the old board at once as soon as that is known.
func TestASlowLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := boardQuery(t, "")
		l, r := newStale(t, q)
		l.takes.Store(int64(10 * time.Second))
		var first sync.WaitGroup
		first.Go(func() { wantBest(t, r, q, "page:b:1", 10*time.Second) })
		time.Sleep(3 * time.Second)
		wantBest(t, r, q, "page:a:1", 0) // that look has been running for two seconds
		first.Wait()
		l.overtake("page:c:1", 200)
		wantBest(t, r, q, "page:b:1", 0)
		time.Sleep(5 * time.Minute)
		l.takes.Store(int64(time.Second))
		wantBest(t, r, q, "page:c:1", 0)
		l.overtake("page:d:1", 300)
		wantBest(t, r, q, "page:c:1", 0)
		l.overtake("page:e:1", 400)
		wantBest(t, r, q, "page:e:1", time.Second) // looks are quick again
		if l.scans != 5 {
			t.Errorf("%d looks, want 5", l.scans)
		}
	})
}
