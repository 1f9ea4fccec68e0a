package reader_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// Every call of a reader to its store and cache has a time-out, and releases it when it is
// answered.
func TestEveryCallIsBoundedAndReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout, cacheTimeout = 3 * time.Second, 100 * time.Millisecond
		calls := &calls{}
		st, cache := &watchedStore{calls: calls}, &watchedCache{calls: calls}
		st.put("c", 1)
		r := newReader(t, st, cache, reader.Config{Timeout: timeout})
		one(t, r, "c", 0)
		one(t, r, "c", time.Second)
		time.Sleep(900 * time.Millisecond)
		one(t, r, "c", time.Second) // a refresh
		time.Sleep(2 * time.Second)
		if won, err := cache.fakeCache.Lock(t.Context(), "c", time.Hour); !won || err != nil {
			t.Fatal(won, err)
		}
		one(t, r, "c", time.Second) // waits for the one with the lock
		if _, err := r.List(t.Context(), "", "", 10); err != nil {
			t.Error(err)
		}
		r.Lag(t.Context())
		if _, err := r.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		seen := map[string]bool{}
		for _, c := range calls.all {
			seen[c.name] = true
			limit := timeout
			if c.ofCache {
				limit = cacheTimeout
			}
			if !c.bounded || c.left > limit {
				t.Errorf("%s: bounded %t, with %s left; want %s at most", c.name, c.bounded, c.left, limit)
			}
			if c.ctx.Err() == nil {
				t.Errorf("%s: its context goes on after the answer", c.name)
			}
		}
		for _, name := range []string{"Check", "Workers", "Lookup", "List", "Get", "Set", "Lock", "Unlock"} {
			if !seen[name] {
				t.Errorf("%s was not called, so that nothing is known of it", name)
			}
		}
	})
}

// calls are the calls that a reader makes.
type calls struct {
	mu  sync.Mutex
	all []call
}

type call struct {
	name    string
	ctx     context.Context
	ofCache bool
	bounded bool
	left    time.Duration
}

func (c *calls) note(ctx context.Context, name string, ofCache bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline, ok := ctx.Deadline()
	c.all = append(c.all, call{name, ctx, ofCache, ok, time.Until(deadline)})
}

type watchedStore struct {
	fakeStore
	calls *calls
}

func (s *watchedStore) Check(ctx context.Context) (store.Checked, error) {
	s.calls.note(ctx, "Check", false)
	return s.fakeStore.Check(ctx)
}

func (s *watchedStore) Workers(ctx context.Context) ([]store.Worker, error) {
	s.calls.note(ctx, "Workers", false)
	return s.fakeStore.Workers(ctx)
}

func (s *watchedStore) View() store.View { return watchedView{s.fakeStore.View(), s.calls} }

type watchedView struct {
	store.View
	calls *calls
}

func (v watchedView) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	v.calls.note(ctx, "Lookup", false)
	return v.View.Lookup(ctx, keys)
}

func (v watchedView) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	v.calls.note(ctx, "List", false)
	return v.View.List(ctx, prefix, after, limit)
}

type watchedCache struct {
	fakeCache
	calls *calls
}

func (c *watchedCache) Get(ctx context.Context, counters []string) ([]store.CachedTotal, error) {
	c.calls.note(ctx, "Get", true)
	return c.fakeCache.Get(ctx, counters)
}

func (c *watchedCache) Set(ctx context.Context, totals []store.CachedTotal, ttl time.Duration) error {
	c.calls.note(ctx, "Set", true)
	return c.fakeCache.Set(ctx, totals, ttl)
}

func (c *watchedCache) Lock(ctx context.Context, counter string, ttl time.Duration) (bool, error) {
	c.calls.note(ctx, "Lock", true)
	return c.fakeCache.Lock(ctx, counter, ttl)
}

func (c *watchedCache) Unlock(ctx context.Context, counter string) error {
	c.calls.note(ctx, "Unlock", true)
	return c.fakeCache.Unlock(ctx, counter)
}
