package storetest

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
)

// RunCache tests that a cache does everything that the reader relies on. open returns a cache for each
// test, without the counters of other tests. The cache must not evict anything while a test runs.
func RunCache(t *testing.T, open func(t *testing.T) store.Cache) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, c store.Cache)
	}{
		{"GetReturnsWhatWasSet", testGetReturnsWhatWasSet},
		{"LaterAsOfWins", testLaterAsOfWins},
		{"ConcurrentSetsKeepTheLatest", testConcurrentSetsKeepTheLatest},
		{"TotalExpires", testTotalExpires},
		{"LockLetsOneIn", testLockLetsOneIn},
		{"LockExpires", testLockExpires},
		{"CancelledContext", testCacheCancelledContext},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, open(t))
		})
	}
}

func cached(counter string, total int64, asOf time.Time) store.CachedTotal {
	return store.CachedTotal{Counter: counter, Total: total, Shards: 3, Exists: true, AsOf: asOf}
}

func get(t testing.TB, c store.Cache, counters ...string) []store.CachedTotal {
	t.Helper()
	got, err := c.Get(t.Context(), counters)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	slices.SortFunc(got, func(a, b store.CachedTotal) int { return strings.Compare(a.Counter, b.Counter) })
	return got
}

func set(t testing.TB, c store.Cache, ttl time.Duration, totals ...store.CachedTotal) {
	t.Helper()
	if err := c.Set(t.Context(), totals, ttl); err != nil {
		t.Fatalf("Set: %v", err)
	}
}

func testGetReturnsWhatWasSet(t *testing.T, c store.Cache) {
	now := time.Now().Truncate(time.Microsecond)
	if got := get(t, c, oddNames...); len(got) != 0 {
		t.Errorf("an empty cache has %v", got)
	}
	var want []store.CachedTotal
	for i, name := range oddNames {
		total := cached(name, int64(i), now.Add(time.Duration(i)*time.Microsecond))
		switch i {
		case 0:
			total.Total = math.MaxInt64 - 1
		case 1:
			total.Total = math.MinInt64 + 1
		case 2:
			total = store.CachedTotal{Counter: name, AsOf: now}
		}
		want = append(want, total)
	}
	set(t, c, time.Minute, want...)
	slices.SortFunc(want, func(a, b store.CachedTotal) int { return strings.Compare(a.Counter, b.Counter) })
	if diff := cmp.Diff(want, get(t, c, append([]string{"not there"}, oddNames...)...), sameTimes); diff != "" {
		t.Errorf("Get (-want +got):\n%s", diff)
	}
	if got := get(t, c, "not there"); len(got) != 0 {
		t.Errorf("got %v for a counter that was never set", got)
	}
}

func testLaterAsOfWins(t *testing.T, c store.Cache) {
	now := time.Now().Truncate(time.Microsecond)
	for _, step := range []struct {
		total int64
		asOf  time.Duration
		want  int64
	}{{1, 0, 1}, {2, time.Microsecond, 2}, {3, 0, 2}, {4, -time.Hour, 2}, {5, time.Second, 5}} {
		set(t, c, time.Minute, cached("a", step.total, now.Add(step.asOf)))
		if got := get(t, c, "a"); len(got) != 1 || got[0].Total != step.want {
			t.Errorf("after Set of %d as of %+v: got %v, want %d", step.total, step.asOf, got, step.want)
		}
	}
}

func testConcurrentSetsKeepTheLatest(t *testing.T, c store.Cache) {
	now := time.Now().Truncate(time.Microsecond)
	var wg sync.WaitGroup
	const setters, rounds = 8, 50
	for i := range setters {
		wg.Go(func() {
			for round := range rounds {
				n := round*setters + i
				// The reader treats an error as a miss. The last Set must then be repeated.
				for range 100 {
					if c.Set(t.Context(), []store.CachedTotal{cached("a", int64(n), now.Add(time.Duration(n)*time.Millisecond))}, time.Minute) == nil {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	if got := get(t, c, "a"); len(got) != 1 || got[0].Total != setters*rounds-1 {
		t.Errorf("got %v, want the total with the latest AsOf, %d", got, setters*rounds-1)
	}
}

func testTotalExpires(t *testing.T, c store.Cache) {
	set(t, c, time.Second, cached("a", 1, time.Now()))
	set(t, c, time.Hour, cached("b", 1, time.Now()))
	eventually(t, "a total with a ttl of 1s is gone", func() bool { return len(get(t, c, "a")) == 0 })
	if len(get(t, c, "b")) != 1 {
		t.Errorf("a total with a ttl of an hour is gone")
	}
}

func testLockLetsOneIn(t *testing.T, c store.Cache) {
	for range 20 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		winners := 0
		for range 8 {
			wg.Go(func() {
				won, err := c.Lock(t.Context(), "a//b", time.Minute)
				if err != nil {
					t.Errorf("Lock: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if won {
					winners++
				}
			})
		}
		wg.Wait()
		if winners != 1 {
			t.Errorf("%d callers have the lock, want 1", winners)
		}
		if won, err := c.Lock(t.Context(), "a/b", time.Millisecond); err != nil || !won {
			t.Errorf("Lock of another counter: got %t, %v", won, err)
		}
		for _, counter := range []string{"a//b", "a/b", "never locked"} {
			if err := c.Unlock(t.Context(), counter); err != nil {
				t.Errorf("Unlock of %q: %v", counter, err)
			}
		}
	}
	set(t, c, time.Minute, cached("x", 1, time.Now()))
	if won, err := c.Lock(t.Context(), "x", time.Minute); err != nil || !won {
		t.Errorf("Lock of a counter with a total: got %t, %v", won, err)
	}
	if err := c.Unlock(t.Context(), "x"); err != nil || len(get(t, c, "x")) != 1 {
		t.Errorf("Unlock took the total away (or failed: %v)", err)
	}
}

func testLockExpires(t *testing.T, c store.Cache) {
	if won, err := c.Lock(t.Context(), "a", time.Second); err != nil || !won {
		t.Fatalf("Lock: got %t, %v", won, err)
	}
	eventually(t, "a lock with a ttl of 1s is free", func() bool {
		won, err := c.Lock(t.Context(), "a", time.Second)
		return err == nil && won
	})
}

func testCacheCancelledContext(t *testing.T, c store.Cache) {
	set(t, c, time.Minute, cached("a", 1, time.Now()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := c.Get(ctx, []string{"a"}); err == nil {
		t.Errorf("Get with a context that has ended: got %v and no error", got)
	}
	if err := c.Set(ctx, []store.CachedTotal{cached("a", 2, time.Now().Add(time.Hour))}, time.Minute); err == nil {
		t.Errorf("Set with a context that has ended: got no error")
	}
	if won, err := c.Lock(ctx, "a", time.Minute); err == nil || won {
		t.Errorf("Lock with a context that has ended: got %t and no error", won)
	}
}

// eventually waits for real time to pass, for longer than any machine needs.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2m: %s", what)
		}
	}
}
