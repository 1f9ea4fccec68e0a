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
