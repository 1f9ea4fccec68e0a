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

// Look-ups enter in their order, also one of more keys than there is room for; never more than fit.
func TestRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &room{most: 10, mostWaiting: 40}
		sizes := []int{6, 4, 7, 1, 25, 2, 10, 1}
		entered := make([]time.Time, len(sizes))
		var inside atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for i, n := range sizes {
			all.Go(func() {
				keys, err := r.enter(ctx, n)
				if err != nil {
					t.Error(err)
					return
				}
				entered[i] = time.Now()
				if now := inside.Add(int64(keys)); now > 10 {
					t.Errorf("%d keys are inside", now)
				}
				time.Sleep(time.Second)
				inside.Add(-int64(keys))
				r.leave(keys)
			})
			synctest.Wait()
		}
		all.Wait()
		if entered[0].IsZero() || !slices.IsSortedFunc(entered, time.Time.Compare) || r.used != 0 || r.keys != 0 || r.waiting.Len() != 0 {
			t.Errorf("they entered at %v, %d keys are left, %d wait", entered, r.used, r.waiting.Len())
		}
	})
}

// A look-up is refused while too many keys wait.
func TestRoomRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &room{most: 10, mostWaiting: 5}
		if _, err := r.enter(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		entered := make(chan error, 1)
		go func() {
			_, err := r.enter(ctx, 5)
			entered <- err
		}()
		synctest.Wait()
		if _, err := r.enter(t.Context(), 1); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("a look-up beside 5 keys that wait got %v", err)
		}
		r.leave(10)
		if err := <-entered; err != nil || r.keys != 0 {
			t.Errorf("the one that waited got %v; %d keys wait", err, r.keys)
		}
	})
}

// A look-up that gives up makes way for the next one.
func TestRoomGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &room{most: 10, mostWaiting: 40}
		first, err := r.enter(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		large, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		given := make(chan error, 1)
		go func() {
			_, err := r.enter(large, 9)
			given <- err
		}()
		synctest.Wait()
		small, err := make(chan error, 1), error(nil)
		patient, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			_, err := r.enter(patient, 5)
			small <- err
		}()
		if err = <-given; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the large one got %v, want its deadline", err)
		}
		if err = <-small; err != nil {
			t.Errorf("the small one got %v", err)
		}
		r.leave(first)
		r.leave(5)
		if r.used != 0 {
			t.Errorf("%d keys are still inside", r.used)
		}
	})
}

// A look-up that is admitted in the moment in which its context ends has entered.
func TestRoomAdmitsAtTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &room{most: 10, mostWaiting: 40}
		first, err := r.enter(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		entered := make(chan int, 1)
		go func() {
			keys, err := r.enter(ctx, 7)
			if err != nil {
				t.Errorf("the one that waited got %v", err)
			}
			entered <- keys
		}()
		synctest.Wait()
		r.mu.Lock()
		cancel() // it wakes up, and waits for the lock
		r.used -= first
		r.admitLocked()
		r.mu.Unlock()
		if keys := <-entered; keys != 7 || r.used != 7 || r.keys != 0 {
			t.Errorf("it has %d keys of %d, and %d wait; want 7 of 7, and 0", keys, r.used, r.keys)
		}
	})
}

// A read that finds the room full fails, and its error says whether too many wait, its turn did not come
// within Config.Timeout, or its caller gave up.
func TestReadsOfAFullRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, err := New(fakestore.New(fakestore.Options{Errorf: t.Errorf}), nil, Config{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r.room = room{most: 1, mostWaiting: 0}
		if _, err := r.room.enter(t.Context(), 1); err != nil {
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
			r.room.mostWaiting = tt.waiting
			_, err := r.lookup(tt.ctx, nil, []store.Key{{Counter: "c"}}) // no view: it is not asked
			if !errors.Is(err, tt.want) || errors.Is(err, tt.not) || r.Stats().StoreErrors != tt.errors {
				t.Errorf("beside %d keys at most: %v after %d errors of the store; want %v after %d", tt.waiting, err, r.Stats().StoreErrors, tt.want, tt.errors)
			}
		}
		if r.room.used != 1 || r.room.keys != 0 {
			t.Errorf("%d keys are inside and %d wait; want 1 and 0", r.room.used, r.room.keys)
		}
	})
}
