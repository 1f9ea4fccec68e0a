// Package memory is a cache inside one process. It keeps totals in memory and drops the least recently
// used ones first.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/countmill/countmill/store"
)

// Config bounds the cache.
type Config struct {
	// Totals is the most totals, and the most locks, that the cache keeps. A total takes some 200 bytes
	// and its counter's name. Default 100,000.
	Totals int
}

// A Cache keeps totals in memory. All methods are safe for concurrent use. An expired total stays in
// memory until it is asked for or pushed out by others.
type Cache struct {
	mu     sync.Mutex
	totals *simplelru.LRU[string, entry]
	locks  *simplelru.LRU[string, time.Time] // until when the lock holds
}

type entry struct {
	total   store.CachedTotal
	expires time.Time
}

var _ store.Cache = (*Cache)(nil)

// New returns an empty cache.
func New(cfg Config) (*Cache, error) {
	size := cmp.Or(cfg.Totals, 100_000)
	totals, err1 := simplelru.NewLRU[string, entry](size, nil)
	locks, err2 := simplelru.NewLRU[string, time.Time](size, nil)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("memory cache: Totals must be positive, got %d", size)
	}
	return &Cache{totals: totals, locks: locks}, nil
}

// gone returns the error of a cancelled ctx. It ignores a deadline that has passed: calls here take no
// time, so the machine was too busy, and reading the store instead would make it busier.
func gone(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Get returns the totals that have not expired.
func (c *Cache) Get(ctx context.Context, counters []string) ([]store.CachedTotal, error) {
	if err := gone(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	found := make([]store.CachedTotal, 0, len(counters))
	for _, counter := range counters {
		e, ok := c.totals.Get(counter)
		switch {
		case !ok:
		case now.Before(e.expires):
			found = append(found, e.total)
		default:
			c.totals.Remove(counter)
		}
	}
	return found, nil
}

// Set keeps each total, unless the cache has a later one (by AsOf) that has not expired.
func (c *Cache) Set(ctx context.Context, totals []store.CachedTotal, ttl time.Duration) error {
	if err := gone(ctx); err != nil {
		return err
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, total := range totals {
		// Readers may call in any order: the later total stays.
		if e, ok := c.totals.Peek(total.Counter); ok && now.Before(e.expires) && e.total.AsOf.After(total.AsOf) {
			continue
		}
		total.Counter = strings.Clone(total.Counter) // the caller's is cut from a request, and would keep all of it in memory
		c.totals.Add(total.Counter, entry{total, now.Add(ttl)})
	}
	return nil
}

// Lock returns true for the first caller, and false until ttl has passed or Unlock was called.
func (c *Cache) Lock(ctx context.Context, counter string, ttl time.Duration) (bool, error) {
	if err := gone(ctx); err != nil {
		return false, err
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if until, ok := c.locks.Peek(counter); ok && now.Before(until) {
		return false, nil
	}
	c.locks.Add(counter, now.Add(ttl))
	return true, nil
}

// Unlock releases the lock, whoever holds it.
func (c *Cache) Unlock(ctx context.Context, counter string) error {
	if err := gone(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locks.Remove(counter)
	return nil
}
