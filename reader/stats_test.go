package reader_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/reader"
)

// The statistics are exact: nothing is counted twice or under another name.
func TestStatsSayWhatHappened(t *testing.T) {
	t.Parallel()
	type bench struct {
		*reader.Reader
		store *fakeStore
		cache *fakeCache
	}
	ask := func(t *testing.T, b bench, maxStaleness time.Duration, counters ...string) {
		_, _ = b.Totals(t.Context(), counters, maxStaleness)
	}
	for name, tc := range map[string]struct {
		script func(t *testing.T, b bench)
		want   reader.Stats
	}{
		"nothing": {func(*testing.T, bench) {}, reader.Stats{}},
		"totals of the store": {func(t *testing.T, b bench) {
			ask(t, b, 0, "three", "absent", "three") // two of its shards come second
		}, reader.Stats{FromStore: 3, Lookups: 2, Keys: 6}},
		"totals of the cache": {func(t *testing.T, b bench) {
			ask(t, b, time.Second, "c")
			ask(t, b, time.Second, "c", "absent")
			time.Sleep(2 * time.Second)
			ask(t, b, time.Second, "c")
		}, reader.Stats{FromCache: 1, FromStore: 3, Lookups: 3, Keys: 6, CacheHits: 1, CacheMisses: 3}},
		"a refresh": {func(t *testing.T, b bench) {
			ask(t, b, time.Second, "c")
			time.Sleep(900 * time.Millisecond)
			ask(t, b, time.Second, "c")
		}, reader.Stats{FromStore: 2, Lookups: 2, Keys: 4, CacheHits: 1, CacheMisses: 1, Refreshes: 1}},
		"a refresh that fails": {func(t *testing.T, b bench) {
			ask(t, b, time.Second, "c")
			time.Sleep(900 * time.Millisecond)
			b.store.breakWith(errAway)
			ask(t, b, time.Second, "c")
		}, reader.Stats{FromCache: 1, FromStore: 1, Lookups: 2, Keys: 4, CacheHits: 1, CacheMisses: 1, Refreshes: 1, StoreErrors: 1}},
		"a lock that is taken": {func(t *testing.T, b bench) {
			_, _ = b.cache.Lock(t.Context(), "c", time.Hour)
			ask(t, b, time.Second, "c")
		}, reader.Stats{FromStore: 1, Lookups: 1, Keys: 2, CacheMisses: 1, LockWaits: 1}},
		"a shared read": {func(t *testing.T, b bench) {
			b.store.before = slow(time.Second)
			var callers sync.WaitGroup
			for range 3 {
				callers.Go(func() { ask(t, b, time.Minute, "c") })
			}
			callers.Wait()
		}, reader.Stats{FromStore: 3, Lookups: 1, Keys: 2, CacheMisses: 3, Shared: 2}},
		"a page": {func(t *testing.T, b bench) {
			_, _ = b.List(t.Context(), "", "", 10)
		}, reader.Stats{FromStore: 2, Lookups: 1, Keys: 6, Lists: 1, Overflows: 1}},
		"an overflow": {func(t *testing.T, b bench) {
			ask(t, b, 0, "c", "over")
		}, reader.Stats{FromStore: 1, Lookups: 2, Keys: 5, Overflows: 1}},
		"an unavailable store": {func(t *testing.T, b bench) {
			ask(t, b, 0, "c")
			b.store.breakWith(errAway)
			ask(t, b, 0, "c")
			_, _ = b.List(t.Context(), "", "", 10)
			b.Lag(t.Context())
			b.store.foreign = errAway
			_, _ = b.Ready(t.Context())
		}, reader.Stats{FromStore: 1, Lookups: 2, Keys: 4, Lists: 1, StoreErrors: 4}},
		"a caller that goes away": {func(t *testing.T, b bench) {
			ctx, cancel := context.WithCancel(t.Context())
			b.store.before = func(context.Context, int) error { cancel(); return nil }
			_, _ = b.Totals(ctx, []string{"c"}, 0)
			_, _ = b.List(ctx, "", "", 10)
			b.Lag(ctx)
			_, _ = b.Ready(ctx)
		}, reader.Stats{Lookups: 1, Keys: 2, Lists: 1}},
		"an unavailable cache": {func(t *testing.T, b bench) {
			b.cache.err = errAway
			for range 4 { // get, lock; the third lock is left out, and all of the fourth
				ask(t, b, time.Second, "c")
			}
		}, reader.Stats{FromStore: 4, Lookups: 4, Keys: 8, CacheMisses: 4, CacheErrors: 5, CacheSkipped: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := bench{store: &fakeStore{}, cache: &fakeCache{}}
				b.store.put("c", 1)
				b.store.put("three", 1, 2, 3)
				b.store.put("over", math.MaxInt64, 1)
				b.Reader = newReader(t, b.store, b.cache, reader.Config{})
				tc.script(t, b)
				if diff := cmp.Diff(tc.want, b.Stats()); diff != "" {
					t.Errorf("stats (-want +got):\n%s", diff)
				}
			})
		})
	}
}
