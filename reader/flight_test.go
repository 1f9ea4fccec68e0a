package reader_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/reader"
)

// slow makes every look-up take d, or end with its context.
func slow(d time.Duration) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestOneCallersCancellationFailsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{before: slow(time.Second)}
		st.put("c", 1)
		r := newReader(t, st, nil, reader.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		callers.Go(func() {
			began := time.Now()
			_, err := r.Totals(ctx, []string{"c"}, time.Minute)
			if !errors.Is(err, context.Canceled) || time.Since(began) != 500*time.Millisecond {
				t.Errorf("the first caller got %v after %s, want Canceled after 500ms", err, time.Since(began))
			}
		})
		synctest.Wait()
		callers.Go(func() {
			if got := one(t, r, "c", time.Minute).Total; got != 1 {
				t.Errorf("the second caller got %d, want 1", got)
			}
		})
		time.Sleep(500 * time.Millisecond)
		cancel()
		callers.Wait()
		if n := len(st.lookupSizes()); n != 1 {
			t.Errorf("%d look-ups, want 1", n)
		}
	})
}

// A read without callers has been stopped, and may take a while to end. A new caller must not get
// its cancellation.
func TestNoCallerJoinsAnAbandonedRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		st.put("c", 1)
		st.before = func(ctx context.Context, n int) error {
			if n > 1 {
				return nil
			}
			<-ctx.Done()
			time.Sleep(time.Second)
			return ctx.Err()
		}
		r := newReader(t, st, nil, reader.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var first sync.WaitGroup
		first.Go(func() {
			if _, err := r.Totals(ctx, []string{"c"}, time.Minute); !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that left got %v, want Canceled", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		one(t, r, "c", time.Minute)
		first.Wait()
	})
}

// When Totals has returned to all callers the store may be closed.
func TestNoReadOutlivesItsCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{before: slow(time.Hour)}
		r := newReader(t, st, &fakeCache{}, reader.Config{Timeout: 2 * time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() { _, _ = r.Totals(ctx, []string{"c"}, time.Minute) })
		}
		began := time.Now()
		callers.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the last caller came back after %s, want its context's second: the read was not stopped", took)
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.open != 0 {
			t.Errorf("%d views open after the last caller left", st.open)
		}
	})
}
