package reader

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// Reads enter in their order, also one of more keys than there is room for. The last one may have more keys than fit.
func TestSemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &semaphore{most: 10, mostWaiting: 400}
		sizes := []int{6, 4, 7, 1, 25, 2, 10, 1}
		entered := make([]time.Time, len(sizes))
		var inside atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for i, n := range sizes {
			all.Go(func() {
				if err := r.enter(ctx, n); err != nil {
					t.Error(err)
					return
				}
				entered[i] = time.Now()
				if now := inside.Add(int64(n)); now >= 10+25 { // the last one to enter may have 25 keys
					t.Errorf("%d keys are inside", now)
				}
				time.Sleep(time.Second)
				inside.Add(-int64(n))
				r.leave(n)
			})
			synctest.Wait()
		}
		all.Wait()
		if entered[0].IsZero() || !slices.IsSortedFunc(entered, time.Time.Compare) || r.used != 0 || !r.lines.Empty() {
			t.Errorf("they entered at %v, %d keys are left, %d wait", entered, r.used, r.lines.Held())
		}
	})
}

// A caller with one read waits for one read of another caller with many, and not for all of them.
func TestSemaphoreTakesTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &semaphore{most: turnKeys, mostWaiting: 100 * turnKeys}
		read := func(caller string, n int) {
			ctx, cancel := context.WithTimeout(WithCaller(t.Context(), caller), time.Minute)
			defer cancel()
			if err := r.enter(ctx, n); err != nil {
				t.Errorf("%s: %v", caller, err)
				return
			}
			time.Sleep(time.Second)
			r.leave(n)
		}
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() { read("greedy", turnKeys) })
		}
		synctest.Wait()
		began := time.Now()
		for range 3 {
			all.Go(func() { read("small", 1) })
		}
		synctest.Wait()
		read("other", 1)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a read of one key took %s beside 30 large ones of another caller, want that of a few", took)
		}
		all.Wait()
	})
}

// A caller whose reads wait leaves room for those of others.
func TestSemaphoreForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &semaphore{most: 1, mostWaiting: 1000}
		if err := r.enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		refused := 0
		for range 100 {
			waiting.Go(func() {
				if errors.Is(r.enter(WithCaller(ctx, "greedy"), 10), countmill.ErrUnavailable) {
					refused++
				}
			})
			synctest.Wait()
		}
		waiting.Go(func() {
			if err := r.enter(WithCaller(ctx, "small"), 10); !errors.Is(err, context.Canceled) {
				t.Errorf("a read beside those of a greedy caller got %v, want a place in its line", err)
			}
		})
		synctest.Wait()
		if refused != 20 {
			t.Errorf("%d reads of the greedy caller were refused, want a fifth", refused)
		}
		cancel()
		waiting.Wait()
	})
}

// A look-up is refused while too many keys wait.
func TestSemaphoreRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &semaphore{most: 10, mostWaiting: 7}
		if err := r.enter(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		entered := make(chan error, 1)
		go func() {
			entered <- r.enter(ctx, 5)
		}()
		synctest.Wait()
		if err := r.enter(t.Context(), 2); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("a look-up beside 5 keys that wait got %v", err)
		}
		r.leave(10)
		if err := <-entered; err != nil || r.lines.Held() != 0 {
			t.Errorf("the one that waited got %v; %d keys wait", err, r.lines.Held())
		}
	})
}

// A look-up that gives up makes way for the next one.
func TestSemaphoreGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &semaphore{most: 10, mostWaiting: 40}
		if err := r.enter(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		large, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		given := make(chan error, 1)
		go func() { given <- r.enter(large, 9) }()
		synctest.Wait()
		small := make(chan error, 1)
		patient, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { small <- r.enter(patient, 5) }()
		if err := <-given; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the large one got %v, want its deadline", err)
		}
		r.leave(10)
		if err := <-small; err != nil {
			t.Errorf("the small one got %v", err)
		}
		r.leave(5)
		if r.used != 0 {
			t.Errorf("%d keys are still inside", r.used)
		}
	})
}

// A look-up that is admitted in the moment in which its context ends has entered.
func TestSemaphoreAdmitsAtTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &semaphore{most: 10, mostWaiting: 40}
		if err := r.enter(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		entered := make(chan error, 1)
		go func() { entered <- r.enter(ctx, 7) }()
		synctest.Wait()
		r.mu.Lock()
		cancel() // it wakes up, and waits for the lock
		r.used -= 10
		r.admitLocked()
		r.mu.Unlock()
		if err := <-entered; err != nil || r.used != 7 || r.lines.Held() != 0 {
			t.Errorf("it got %v, %d keys are inside, and %d wait; want 7 and 0", err, r.used, r.lines.Held())
		}
	})
}

// A read that finds the semaphore full fails, and its error says whether too many wait, its turn did not come
// within Config.Timeout, or its caller gave up.
func TestReadsOfAFullSemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, err := New(fakestore.New(fakestore.Options{Errorf: t.Errorf}), nil, Config{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r.semaphore = semaphore{most: 1, mostWaiting: 0}
		if err := r.semaphore.enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			ctx       context.Context
			waiting   int // most keys
			want, not error
			errors    int64 // of the store, so far
		}{
			{t.Context(), 0, countmill.ErrUnavailable, context.DeadlineExceeded, 0},
			{t.Context(), 9, countmill.ErrUnavailable, context.Canceled, 1},
			{t.Context(), 9, context.DeadlineExceeded, context.Canceled, 2},
			{canceled, 9, context.Canceled, countmill.ErrUnavailable, 2},
		} {
			r.semaphore.mostWaiting = tt.waiting
			_, err := r.lookup(tt.ctx, nil, []store.Key{{Counter: "c"}}) // no view: it is not asked
			if !errors.Is(err, tt.want) || errors.Is(err, tt.not) || r.Stats().StoreErrors != tt.errors {
				t.Errorf("beside %d keys at most: %v after %d errors of the store; want %v after %d", tt.waiting, err, r.Stats().StoreErrors, tt.want, tt.errors)
			}
		}
		if r.semaphore.used != 1 || r.semaphore.lines.Held() != 0 {
			t.Errorf("%d keys are inside and %d wait; want 1 and 0", r.semaphore.used, r.semaphore.lines.Held())
		}
	})
}
