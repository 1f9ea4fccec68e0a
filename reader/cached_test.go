package reader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

func TestCacheServesYoungTotals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, cache := &fakeStore{}, &fakeCache{}
		st.put("c", 1)
		var ages []string
		r := newReader(t, st, cache, reader.Config{
			DefaultStaleness: 2 * time.Second,
			OnServe:          func(age time.Duration, source string) { ages = append(ages, fmt.Sprint(age, " ", source)) },
		})
		first := one(t, r, "c", 2*time.Second)
		st.put("c", 2)
		time.Sleep(time.Second)
		if got := one(t, r, "c", -1); got.Source != "cache" || got.Total != 1 || !got.AsOf.Equal(first.AsOf) || got.Shards != 1 || !got.Exists {
			t.Errorf("after 1s: %+v, want the first from the cache", got)
		}
		if got := one(t, r, "c", 999*time.Millisecond); got.Source != "store" || got.Total != 2 {
			t.Errorf("after 1s with less permitted: %+v, want 2 from the store", got)
		}
		st.put("c", 3)
		if got := one(t, r, "c", 0); got.Source != "store" || got.Total != 3 {
			t.Errorf("with 0 permitted: %+v, want 3 from the store", got)
		}
		time.Sleep(2*time.Second + 1)
		if got := one(t, r, "c", 2*time.Second); got.Source != "store" || got.Total != 3 {
			t.Errorf("after the age: %+v, want 3 from the store", got)
		}
		want := "[0s store 1s cache 0s store 0s store 0s store]"
		if got := fmt.Sprint(ages); got != want {
			t.Errorf("ages served are %s, want %s", got, want)
		}
		if s := r.Stats(); s.FromCache != 1 || s.FromStore != 4 || s.CacheHits != 1 || s.CacheMisses != 3 {
			t.Errorf("stats are %+v, want 1 from cache, 4 from store, 1 hit, 3 misses", s)
		}
	})
}

// After a check has found another database, the cache serves nothing until a check succeeds.
// Other errors of a check do not change that.
func TestNothingIsServedOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, cache := &fakeStore{}, &fakeCache{}
		st.put("c", 1)
		st.put("d", 1)
		r := newReader(t, st, cache, reader.Config{})
		one(t, r, "c", time.Hour)
		check := func(what string, fails error, source string) {
			t.Helper()
			st.mu.Lock()
			st.foreign = fails
			st.mu.Unlock()
			r.ReadSettings(t.Context())
			got, err := r.Totals(t.Context(), []string{"c"}, time.Hour)
			if source == "" && !errors.Is(err, countmill.ErrUnavailable) || source != "" && (err != nil || got[0].Source != source) {
				t.Errorf("%s: got %+v, %v, want %q", what, got, err, source)
			}
		}
		check("away", errAway, reader.SourceCache)
		check("another", fmt.Errorf("%w: the id has changed", store.ErrOtherDatabase), "")
		check("another, and away", errAway, "")
		check("back", nil, reader.SourceCache)
	})
}

// Only totals in the cache are asked for. The reader finds another database within CheckEvery all the same. A store that does not answer
// delays one call in CheckEvery.
func TestCachedTotalsOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := false
		st, cache := &fakeStore{called: func(ctx context.Context, call string) {
			if hangs && call == "check" {
				<-ctx.Done()
			}
		}}, &fakeCache{}
		st.put("c", 1)
		r := newReader(t, st, cache, reader.Config{CheckEvery: 10 * time.Second, Timeout: 5 * time.Second})
		one(t, r, "c", time.Hour)
		hangs = true
		began, waited := time.Now(), time.Duration(0)
		for time.Since(began) < time.Minute {
			asked := time.Now()
			if got := one(t, r, "c", time.Hour); got.Source != reader.SourceCache {
				t.Fatalf("while the store does not answer: %+v, want it from the cache", got)
			}
			waited += time.Since(asked)
			time.Sleep(time.Second / 2)
		}
		if waited != 20*time.Second {
			t.Errorf("calls of a minute waited %s for the store, want four times the time-out of 5s", waited)
		}
		hangs, st.foreign = false, store.ErrOtherDatabase
		time.Sleep(10 * time.Second)
		if got, err := r.Totals(t.Context(), []string{"c"}, time.Hour); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("of another database: %+v, %v; want ErrUnavailable", got, err)
		}
	})
}

// A store that cannot be written has all totals, and its check is as good as another.
func TestAFullDiskIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{foreign: fmt.Errorf("%w: no space", store.ErrReadOnly)}
		st.put("c", 1)
		r := newReader(t, st, nil, reader.Config{})
		for range 3 {
			if got := one(t, r, "c", 0); got.Total != 1 {
				t.Errorf("got %+v, want 1", got)
			}
			if _, err := r.Ready(t.Context()); err != nil {
				t.Errorf("not ready: %v", err)
			}
			time.Sleep(store.CheckEvery)
		}
	})
}

func TestCacheIsNotBelieved(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, kept := range map[string]store.CachedTotal{
		"the answer to another name": {Counter: "other", Total: 99, AsOf: now},
		"a total of the future":      {Counter: "c", Total: 99, AsOf: now.Add(time.Hour)},
		"an old total":               {Counter: "c", Total: 99, AsOf: now.Add(-time.Hour)},
		"a total of no moment":       {Counter: "c", Total: 99},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, cache := &fakeStore{}, &fakeCache{}
			st.put("c", 1)
			cache.putAs("c", kept)
			if got := one(t, newReader(t, st, cache, reader.Config{}), "c", time.Minute); got.Total != 1 {
				t.Errorf("served %+v, want the 1 of the store", got)
			}
		})
	}
}

// Each read learns the store's time, not only each check: the store's clock may have been set.
func TestReadsTeachTheStoresTime(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(*testing.T, *reader.Reader){
		"Totals": func(t *testing.T, r *reader.Reader) { one(t, r, "c", 0) },
		"List": func(t *testing.T, r *reader.Reader) {
			if _, err := r.List(t.Context(), "", "", 1); err != nil {
				t.Error(err)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := &fakeStore{}
			st.put("c", 1)
			var got time.Duration
			r := newReader(t, st, nil, reader.Config{OnServe: func(age time.Duration, _ string) { got = age }})
			read(t, r)
			st.skew = -time.Hour
			if read(t, r); got != 0 {
				t.Errorf("%s: a total read this moment is %s old", name, got)
			}
		})
	}
}

// A slowCheck delays the answers to Check.
type slowCheck struct {
	fakeStore
	delay time.Duration
}

func (s *slowCheck) Check(ctx context.Context) (store.Checked, error) {
	checked, err := s.fakeStore.Check(ctx)
	time.Sleep(s.delay)
	return checked, err
}

func TestCacheErrorsAreMisses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, cache := &fakeStore{}, &fakeCache{hang: true}
		st.put("c", 1)
		var log strings.Builder
		r := newReader(t, st, cache, reader.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		began := time.Now()
		for i := range 1000 {
			if got := one(t, r, "c", time.Second); got.Total != 1 || got.Source != "store" {
				t.Fatalf("read %d: %+v, want 1 from the store", i, got)
			}
		}
		if took := time.Since(began); took > 600*time.Millisecond {
			t.Errorf("1,000 reads took %s, want few time-outs of 100ms", took)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d log lines, want 1:\n%s", n, log.String())
		}
		s := r.Stats()
		if s.CacheErrors != 5 || s.CacheSkipped == 0 {
			t.Errorf("%d cache errors and %d skipped, want 5 and some", s.CacheErrors, s.CacheSkipped)
		}
		cache.mu.Lock()
		cache.hang = false
		cache.mu.Unlock()
		time.Sleep(time.Second)
		one(t, r, "c", time.Second)
		if got := one(t, r, "c", time.Second); got.Source != "cache" {
			t.Errorf("cache back: %+v, want it used", got)
		}
		if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[1], "level=INFO msg=\"cache answers again\" after=1s") {
			t.Errorf("log:\n%s\nwant one line more: the cache answers again", log.String())
		}
	})
}

// One caller refreshes a total early; only this caller waits for the store.
func TestRefreshAheadByOneCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, cache := &fakeStore{}, &fakeCache{}
		st.put("c", 1)
		readers := []*reader.Reader{newReader(t, st, cache, reader.Config{}), newReader(t, st, cache, reader.Config{})}
		one(t, readers[0], "c", time.Second)
		one(t, readers[1], "c", time.Second) // after the first check of the store
		st.before = func(context.Context, int) error { time.Sleep(100 * time.Millisecond); return nil }
		st.put("c", 2)
		time.Sleep(800 * time.Millisecond)
		var mu sync.Mutex
		waited := map[time.Duration]int{}
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				began := time.Now()
				got := one(t, readers[i%2], "c", time.Second)
				mu.Lock()
				defer mu.Unlock()
				waited[time.Since(began)]++
				if took := time.Since(began); took > 0 != (got.Total == 2) {
					t.Errorf("after %s the total is %d", took, got.Total)
				}
			})
		}
		callers.Wait()
		if waited[0] != 49 || waited[100*time.Millisecond] != 1 {
			t.Errorf("callers waited %v, want 49 not at all and one 100ms", waited)
		}
		if got := one(t, readers[0], "c", time.Second); got.Total != 2 || got.Source != "cache" {
			t.Errorf("after the refresh: %+v, want 2 from the cache", got)
		}
	})
}

// A failed refresh takes no longer than the time that was left.
func TestRefreshThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, cache := &fakeStore{}, &fakeCache{}
		st.put("c", 1)
		r := newReader(t, st, cache, reader.Config{})
		one(t, r, "c", time.Second)
		st.before = func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
		time.Sleep(900 * time.Millisecond)
		began := time.Now()
		if got := one(t, r, "c", time.Second); got.Total != 1 || got.Source != "cache" || time.Since(began) != 100*time.Millisecond {
			t.Errorf("served %+v after %s, want the cached 1 after the 100ms left", got, time.Since(began))
		}
		time.Sleep(time.Nanosecond)
		if _, err := r.Totals(t.Context(), []string{"c"}, time.Second); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("then the error is %v, want ErrUnavailable", err)
		}
	})
}

func TestLockHolderThatDies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, cache := &fakeStore{}, &fakeCache{}
		st.put("c", 1)
		if won, err := cache.Lock(t.Context(), "c", time.Hour); !won || err != nil {
			t.Fatal(won, err)
		}
		r := newReader(t, st, cache, reader.Config{})
		began := time.Now()
		if got := one(t, r, "c", time.Second); got.Total != 1 || time.Since(began) != 50*time.Millisecond {
			t.Errorf("%+v after %s, want 1 after 50ms", got, time.Since(began))
		}
	})
}
