package reader_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/reader"
)

// Every call of a reader to its store and cache has a time-out, and releases it when it is
// answered.
func TestEveryCallIsBoundedAndReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout, cacheTimeout = 3 * time.Second, 100 * time.Millisecond
		var mu sync.Mutex
		contexts := map[string][]context.Context{}
		within := func(limit time.Duration) func(context.Context, string) {
			return func(ctx context.Context, call string) {
				mu.Lock()
				defer mu.Unlock()
				contexts[call] = append(contexts[call], ctx)
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > limit {
					t.Errorf("%s: bounded %t, with %s left; want %s at most", call, ok, time.Until(deadline), limit)
				}
			}
		}
		st, cache := &fakeStore{called: within(timeout)}, &fakeCache{called: within(cacheTimeout)}
		st.put("c", 1)
		r := newReader(t, st, cache, reader.Config{Timeout: timeout})
		one(t, r, "c", 0)
		one(t, r, "c", time.Second)
		time.Sleep(900 * time.Millisecond)
		one(t, r, "c", time.Second) // a refresh
		time.Sleep(2 * time.Second)
		other, cancel := context.WithTimeout(t.Context(), cacheTimeout)
		if won, err := cache.Lock(other, "c", time.Hour); !won || err != nil {
			t.Fatal(won, err)
		}
		cancel()
		one(t, r, "c", time.Second) // waits for the one with the lock
		if _, err := r.List(t.Context(), "", "", 10); err != nil {
			t.Error(err)
		}
		r.Lag(t.Context())
		if _, err := r.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		for _, call := range []string{"check", "workers", "lookup", "list", "get", "set", "lock", "unlock"} {
			if len(contexts[call]) == 0 {
				t.Errorf("%s was not called, so that nothing is known of it", call)
			}
			for _, ctx := range contexts[call] {
				if ctx.Err() == nil {
					t.Errorf("%s: its context goes on after the answer", call)
				}
			}
		}
	})
}
