package reader_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
)

// While a check of the store is under way, reads go on by the result of the last check.
func TestOneCallerChecksTheStore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		last error // of the check before
		want error
	}{
		{nil, nil},
		{errors.New("meta id changed"), countmill.ErrUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := &slowCheck{}
			st.put("c", 1)
			r := newReader(t, st, nil, reader.Config{CheckEvery: 10 * time.Second})
			one(t, r, "c", 0)
			time.Sleep(10 * time.Second)
			st.foreign = tc.last
			if _, err := r.Totals(t.Context(), []string{"c"}, 0); !errors.Is(err, tc.want) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			st.foreign, st.delay = nil, time.Second
			before := st.checks
			took := make(chan time.Duration)
			for range 10 {
				go func() {
					began := time.Now()
					_, err := r.Totals(t.Context(), []string{"c"}, 0)
					waited := time.Since(began)
					if waited == 0 && !errors.Is(err, tc.want) || waited > 0 && err != nil {
						t.Errorf("after %s, the last check being %v: %v", waited, tc.last, err)
					}
					took <- waited
				}()
			}
			waited := 0
			for range 10 {
				if <-took > 0 {
					waited++
				}
			}
			if n := st.checks - before; n != 1 || waited != 1 {
				t.Errorf("after %v: %d of 10 callers waited for %d checks, want 1 for 1", tc.last, waited, n)
			}
		})
	}
}

// Callers who need the store's present settings share a check that began after they came. A check of theirs that takes too long
// refuses nobody else. A check for all reads does.
func TestChecksAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &slowCheck{}
		st.put("c", 1)
		r := newReader(t, st, nil, reader.Config{})
		one(t, r, "c", 0)
		st.delay = time.Second
		var callers sync.WaitGroup
		for range 2 {
			for range 10 {
				callers.Go(func() {
					if _, err := r.Totals(t.Context(), []string{"=nobody"}, 0); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(time.Second / 2)
		}
		callers.Wait()
		if n := st.checks - 1; n != 2 {
			t.Errorf("20 callers at two moments of one check: %d checks, want 2", n)
		}
		st.called = func(ctx context.Context, call string) {
			if call == "check" {
				<-ctx.Done()
			}
		}
		if _, err := r.Totals(t.Context(), []string{"=nobody"}, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a group, without an answer of the store: %v", err)
		}
		one(t, r, "c", 0)
		time.Sleep(10 * time.Second)
		read := func() error {
			_, err := r.Totals(t.Context(), []string{"c"}, 0)
			return err
		}
		asks := read()
		callers.Go(func() { _ = read() })
		time.Sleep(time.Second)
		if beside := read(); !errors.Is(asks, context.DeadlineExceeded) || !errors.Is(beside, context.DeadlineExceeded) {
			t.Errorf("counters, when the check is due and has no answer: %v, and beside a check %v", asks, beside)
		}
		callers.Wait()
	})
}

func TestReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cache := &fakeCache{}
		r := newReader(t, &fakeStore{}, cache, reader.Config{})
		if degraded, err := r.Ready(t.Context()); degraded != "" || err != nil {
			t.Errorf("Ready = %q, %v; want all well", degraded, err)
		}
		cache.err = errors.New("connection refused")
		time.Sleep(time.Second)
		if degraded, err := r.Ready(t.Context()); !strings.Contains(degraded, "connection refused") || err != nil {
			t.Errorf("Ready with a broken cache = %q, %v; want degraded with the reason", degraded, err)
		}
		r = newReader(t, &fakeStore{}, nil, reader.Config{})
		if degraded, err := r.Ready(t.Context()); degraded != "" || err != nil {
			t.Errorf("Ready without a cache = %q, %v; want all well", degraded, err)
		}
	})
}

// Calls within a second, and during a check that is slow, cost one check. A caller that gives up does not spoil the
// answer of the others, and the last one to give up leaves none.
func TestReadyIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &slowCheck{delay: 2 * time.Second}
		st.foreign = errors.New("meta id changed")
		r := newReader(t, st, nil, reader.Config{})
		ready := func(patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := r.Ready(ctx)
			return err
		}
		var callers sync.WaitGroup
		for i := range 10 {
			callers.Go(func() {
				patience, want := time.Minute, st.foreign
				if i%2 == 0 {
					patience, want = time.Second, context.DeadlineExceeded
				}
				if err := ready(patience); !errors.Is(err, countmill.ErrUnavailable) || !errors.Is(err, want) {
					t.Errorf("a caller that waits %s: %v, want %v", patience, err, want)
				}
			})
			time.Sleep(time.Millisecond)
		}
		callers.Wait()
		if st.checks != 1 {
			t.Errorf("10 calls beside each other: %d checks, want 1", st.checks)
		}
		st.delay = time.Second / 2
		if err := ready(time.Second / 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that is alone and gives up: %v", err)
		}
		st.foreign, st.delay = nil, 0
		for range 30 {
			if err := ready(time.Minute); err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if st.checks != 2+3 {
			t.Errorf("%d checks, want 3 more in 3 seconds", st.checks)
		}
	})
}
