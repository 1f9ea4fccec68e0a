package reader

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
)

// Look-ups enter in their order, also one of more keys than there is room for; never more than fit.
func TestRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &room{most: 10, mostWaiting: 40}
		sizes := []int{6, 4, 7, 1, 25, 2, 10, 1}
		entered := make([]time.Time, len(sizes))
		var inside atomic.Int64
		for i, n := range sizes {
			go func() {
				keys, err := r.enter(t.Context(), n)
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
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
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
		entered := make(chan error, 1)
		go func() {
			_, err := r.enter(t.Context(), 5)
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
		go func() {
			_, err := r.enter(t.Context(), 5)
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
