package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol"
)

// A cacheServer is the cache of a schedule: a real one, with faults.
type cacheServer struct {
	*kernel
	cache *memory.Cache
	sets  map[string][]store.CachedTotal // all that each key had
}

// cache is the cache as one process sees it. The identity of its database begins each key.
type cache struct {
	*cacheServer
	p        *proc
	identity string
}

// of returns the cache as a process with a store sees it.
func (cs *cacheServer) of(p *proc, s *protocol.Store) *cache {
	prefix, key := s.CacheIdentity()
	return &cache{cs, p, prefix + string(key[:])}
}

var _ store.Cache = (*cache)(nil)

var errCache = errors.New("sim: the cache failed")

func (c *cache) call(ctx context.Context, op string, key uint64, asks, found text, do func() error) (err error) {
	gets := func() string { return answerText(err, found) }
	if !c.park(&step{p: c.p, op: op, key: key, ctx: ctx, aside: true, asks: asks, gets: gets, run: func(f callEnd) {
		switch {
		case f == ended:
			err = context.DeadlineExceeded
		case f == killed:
		case c.strikes(CacheFails):
			err = errCache
		default:
			err = do()
		}
	}}) {
		return errFenced
	}
	return err
}

func (c *cache) Get(ctx context.Context, counters []string) (found []store.CachedTotal, err error) {
	keys := make([]string, len(counters))
	for i, counter := range counters {
		keys[i] = c.identity + counter
	}
	err = c.call(ctx, "cache get", stringsKey(counters), joined(counters), func() string { return cachedText(found) }, func() (err error) {
		found, err = c.cache.Get(background, keys)
		for i := range found {
			c.spoil(found, i)
			found[i].Counter = strings.TrimPrefix(found[i].Counter, c.identity)
		}
		if len(found) > 0 && c.strikes(CacheForgets) {
			found = found[1:]
		}
		return err
	})
	return found, err
}

// spoil gives an older version of an entry, or that of another counter.
func (c *cache) spoil(found []store.CachedTotal, i int) {
	old := c.sets[found[i].Counter]
	if len(old) > 1 && c.strikes(CacheStale) {
		found[i] = old[c.rng.IntN(len(old)-1)]
	}
	if c.strikes(CacheSwapped) {
		found[i].Counter, found[i].Total = "another", found[i].Total+1
	}
}

func (c *cache) Set(ctx context.Context, totals []store.CachedTotal, ttl time.Duration) error {
	entries, names, keys := slices.Clone(totals), make([]string, len(totals)), make([]string, len(totals))
	for i, t := range totals {
		names[i], keys[i] = t.Counter, c.identity+t.Counter
		entries[i].Counter = keys[i]
	}
	return c.call(ctx, "cache set", stringsKey(names), func() string { return cachedText(totals) }, nil, func() error {
		set := func() error {
			for _, t := range entries {
				c.sets[t.Counter] = append(c.sets[t.Counter], t)
			}
			before, _ := c.cache.Get(background, keys)
			err := c.cache.Set(background, entries, ttl)
			after, _ := c.cache.Get(background, keys)
			c.checkSet(before, after)
			return err
		}
		if c.strikes(CacheLate) {
			c.later(set)
			return errCache
		}
		return set()
	})
}

func (c *cache) Lock(ctx context.Context, counter string, ttl time.Duration) (won bool, err error) {
	err = c.call(ctx, "cache lock", stringsKey([]string{counter}), joined([]string{counter}), func() string { return fmt.Sprint(won) }, func() (err error) {
		won, err = c.cache.Lock(background, c.identity+counter, ttl)
		return err
	})
	return won, err
}

func (c *cache) Unlock(ctx context.Context, counter string) error {
	return c.call(ctx, "cache unlock", stringsKey([]string{counter}), joined([]string{counter}), nil, func() error {
		return c.cache.Unlock(background, c.identity+counter)
	})
}

// checkSet: a cache never has an older total than before.
func (cs *cacheServer) checkSet(before, after []store.CachedTotal) {
	for _, b := range before {
		for _, a := range after {
			if a.Counter == b.Counter && a.AsOf.Before(b.AsOf) {
				cs.violate("the cache took a total of %s over one that was %s newer", a.Counter, b.AsOf.Sub(a.AsOf))
			}
		}
	}
}

func stringsKey(names []string) uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, name := range names {
		_, _ = h.WriteString(name)
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}
