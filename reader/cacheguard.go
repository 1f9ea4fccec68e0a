package reader

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/countmill/countmill/internal/deadline"
	"github.com/countmill/countmill/store"
)

const (
	// cacheStrikes in a row make the cache count as away for cacheRest: without it
	// every read would wait for its time-outs. Guesses; a restarted memcached fails
	// each pooled connection once.
	cacheStrikes = 5
	cacheRest    = time.Second

	// cacheLogEvery bounds the log lines of a cache that is away.
	cacheLogEvery = 10 * time.Second
)

var errCacheResting = errors.New("cache failed a moment ago")

// A cacheGuard bounds the calls of a cache in time and leaves it alone for a while
// after failures. Its errors are misses to the reader.
type cacheGuard struct {
	cache   store.Cache
	timeout time.Duration
	log     *slog.Logger
	stats   *counts

	mu      sync.Mutex
	strikes int
	rests   time.Time // until then
	logged  time.Time
}

func (g *cacheGuard) get(ctx context.Context, counters []string) (found []store.CachedTotal, err error) {
	err = g.call(ctx, "get", func(ctx context.Context) error {
		found, err = g.cache.Get(ctx, counters)
		return err
	})
	return found, err // a cache of several servers can find some and fail on others
}

func (g *cacheGuard) set(ctx context.Context, totals []store.CachedTotal, ttl time.Duration) error {
	return g.call(ctx, "set", func(ctx context.Context) error { return g.cache.Set(ctx, totals, ttl) })
}

func (g *cacheGuard) lock(ctx context.Context, counter string, ttl time.Duration) (won bool, err error) {
	err = g.call(ctx, "lock", func(ctx context.Context) error {
		won, err = g.cache.Lock(ctx, counter, ttl)
		return err
	})
	return won && err == nil, err
}

func (g *cacheGuard) unlock(ctx context.Context, counter string) error {
	return g.call(ctx, "unlock", func(ctx context.Context) error { return g.cache.Unlock(ctx, counter) })
}

func (g *cacheGuard) call(ctx context.Context, name string, call func(context.Context) error) error {
	if g.resting() {
		g.stats.cacheSkipped.Add(1)
		return errCacheResting
	}
	bounded, cancel := deadline.After(ctx, g.timeout)
	defer cancel()
	err := call(bounded)
	if err != nil && ctx.Err() != nil { // the caller's doing, not the cache's
		return err
	}
	g.note(ctx, name, err)
	return err
}

func (g *cacheGuard) resting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.rests.IsZero() && time.Now().Before(g.rests) // nearly always the first: clocks cost
}

// note counts a failure and logs it unless one was logged a moment ago.
func (g *cacheGuard) note(ctx context.Context, name string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.strikes = 0
		return
	}
	g.stats.cacheErrors.Add(1)
	now := time.Now()
	if g.strikes++; g.strikes >= cacheStrikes {
		g.strikes, g.rests = 0, now.Add(cacheRest)
	}
	if now.Sub(g.logged) >= cacheLogEvery {
		g.logged = now
		g.log.LogAttrs(ctx, slog.LevelWarn, "cache failed, reading the store instead",
			slog.String("call", name), slog.Any("err", err))
	}
}
