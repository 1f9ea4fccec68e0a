package reader

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
)

const (
	// After breakerFailures failed calls in a row the reader skips the cache for breakerPause.
	// Else every read would wait for the cache's time-outs. Both are guesses; a restarted
	// memcached fails each pooled connection once.
	breakerFailures = 5
	breakerPause    = time.Second

	// cacheLogEvery is the shortest interval between two log lines about a failing cache.
	cacheLogEvery = 10 * time.Second
)

var errBreakerOpen = errors.New("cache skipped after repeated failures")

// A breaker is a circuit breaker: it bounds each call to a cache in time, and skips the cache for
// a while after failures in a row (Nygard, Release It!, 2007). To the reader its errors are
// misses.
type breaker struct {
	cache   store.Cache
	timeout time.Duration
	log     *slog.Logger
	stats   *counts

	mu        sync.Mutex
	failures  int
	openUntil time.Time // the cache is skipped until then
	down      time.Time // since when the cache is skipped, or has not answered after that
	logged    time.Time
}

func (b *breaker) get(ctx context.Context, counters []string) (found []store.CachedTotal, err error) {
	err = b.call(ctx, "get", func(ctx context.Context) error {
		found, err = b.cache.Get(ctx, counters)
		return err
	})
	return found, err // after an error of one of its servers, a cache can still have found some totals
}

func (b *breaker) set(ctx context.Context, totals []store.CachedTotal, ttl time.Duration) error {
	return b.call(ctx, "set", func(ctx context.Context) error { return b.cache.Set(ctx, totals, ttl) })
}

func (b *breaker) lock(ctx context.Context, counter string, ttl time.Duration) (won bool, err error) {
	err = b.call(ctx, "lock", func(ctx context.Context) error {
		won, err = b.cache.Lock(ctx, counter, ttl)
		return err
	})
	return won && err == nil, err
}

func (b *breaker) unlock(ctx context.Context, counter string) error {
	return b.call(ctx, "unlock", func(ctx context.Context) error { return b.cache.Unlock(ctx, counter) })
}

func (b *breaker) call(ctx context.Context, name string, call func(context.Context) error) error {
	if b.open() {
		b.stats.cacheSkipped.Add(1)
		return errBreakerOpen
	}
	bounded, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	err := call(bounded)
	if err != nil && ctx.Err() != nil { // the caller gave up; the cache did not fail
		return err
	}
	b.note(ctx, name, err)
	return err
}

func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.openUntil.IsZero() && time.Now().Before(b.openUntil) // IsZero first: it is nearly always true, and reading a clock costs more
}

// note counts a failure, and logs it unless one was logged within cacheLogEvery. It logs the first
// answer after the cache was skipped.
func (b *breaker) note(ctx context.Context, name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.failures = 0
		b.answeredLocked(ctx)
		return
	}
	b.stats.cacheErrors.Add(1)
	now := time.Now()
	if b.failures++; b.failures >= breakerFailures {
		b.failures, b.openUntil = 0, now.Add(breakerPause)
		if b.down.IsZero() {
			b.down = now
		}
	}
	if now.Sub(b.logged) >= cacheLogEvery {
		b.logged = now
		b.log.LogAttrs(ctx, slog.LevelWarn, "cache failed, reading the store instead",
			slog.String("call", name), slog.Any("err", err))
	}
}

func (b *breaker) answeredLocked(ctx context.Context) {
	if b.down.IsZero() {
		return
	}
	b.log.LogAttrs(ctx, slog.LevelInfo, "cache answers again", slog.Duration("after", time.Since(b.down)))
	b.down = time.Time{}
}
