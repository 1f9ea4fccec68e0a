package reader_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
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

// A question every five minutes gets the increments from before it, not the names of the last question.
func TestACallerAfterAPause(t *testing.T) {
	t.Parallel()
	for _, window := range []string{"", "today", "1h"} {
		for _, other := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				l := &lingering{world: newWorld(t, 1, embedded), other: other}
				l.takes.Store(int64(time.Second))
				r := newTopReader(t, l, reader.Config{BoardRate: 100})
				time.Sleep(24 * time.Hour)
				l.fold("page:a:1", 5, time.Now())
				q := boardQuery(t, window)
				wantBest(t, r, q, "page:a:1", time.Second)
				for i, next := range []string{"page:b:1", "page:c:1", "page:d:1"} {
					l.overtake(next, 100*int64(i+1))
					wantBest(t, r, q, next, time.Second)
				}
				l.overtake("page:a:1", 200)
				rank, err := r.Rank(t.Context(), q.BoardQuery, "page:b:1")
				if err != nil || rank.Rank != 4 || rank.Of != 4 || time.Since(rank.CompleteAsOf) > time.Second {
					t.Errorf("%q: %+v, %v; want rank 4 of 4 as of a second ago", window, rank, err)
				}
			})
		}
	}
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

// A look that runs long keeps no callers of other boards waiting.
func TestALookBehindASlowOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := boardQuery(t, "")
		l, r := newStale(t, q)
		l.takes.Store(int64(10 * time.Second))
		var other sync.WaitGroup
		other.Go(func() { wantBest(t, r, boardQuery(t, "today"), "page:b:1", 10*time.Second) })
		time.Sleep(3 * time.Second)
		wantBest(t, r, q, "page:a:1", 0)
		other.Wait()
	})
}

// A caller leaves when its time ends. The look goes on for the others, who share it.
func TestACallerLeavesALook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := boardQuery(t, "")
		l, r := newStale(t, q)
		var all sync.WaitGroup
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, took, err := best(ctx, r, q); !errors.Is(err, countmill.ErrUnavailable) || took != 300*time.Millisecond {
				t.Errorf("a caller with 300ms: %v after %s", err, took)
			}
		})
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			if _, took, err := best(ctx, r, q); !errors.Is(err, context.Canceled) || took != 300*time.Millisecond {
				t.Errorf("a caller that leaves after 300ms: %v after %s", err, took)
			}
		})
		time.Sleep(100 * time.Millisecond)
		wantBest(t, r, q, "page:b:1", 900*time.Millisecond)
		all.Wait()
		for range 10 { // nothing is counted
			time.Sleep(5 * time.Minute)
			wantBest(t, r, q, "page:b:1", 0)
		}
		l.fold("page:c:1", 200, time.Now())
		time.Sleep(19 * time.Second)
		wantBest(t, r, q, "page:b:1", 0) // somebody asked 19 seconds ago
		time.Sleep(2 * time.Second)
		if wantBest(t, r, q, "page:c:1", 0); l.scans != 3 {
			t.Errorf("%d looks, want 3", l.scans)
		}
	})
}
