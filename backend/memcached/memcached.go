package memcached

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/countmill/countmill/store"
)

const (
	// setters is the number of totals that one Set writes at once: memcached's text protocol sets one
	// per exchange. The number is a guess.
	setters = 16

	// attempts is how often a Set tries a total that others set at the same time.
	attempts = 10
)

var errMixedUp = errors.New("the answer belongs to another key")

// A Cache keeps totals in memcached. All methods are safe for concurrent use. Each call ends within
// Config.Timeout.
type Cache struct {
	cfg   Config
	codec codec
	pool  *pool
}

var _ store.Cache = (*Cache)(nil)

// Open checks the configuration and returns at once. The first call connects to
// servers, so an unreachable memcached does not delay the start.
func Open(cfg Config) (*Cache, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("memcached: %w", err)
	}
	codec, err := newCodec(cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("memcached: Key: %w", err)
	}
	return &Cache{cfg: cfg, codec: codec, pool: newPool(cfg)}, nil
}

// Close waits for running exchanges, a few Timeouts at most, and closes the connections. Later calls
// return errors.
func (c *Cache) Close() error {
	c.pool.close()
	return nil
}

// An entry is the item that memcached has for a counter.
type entry struct {
	item  *memcache.Item
	total store.CachedTotal
	bad   error // says why the value is not a total of the counter; nil if it is one
}

// Get returns the totals that it finds. If some servers fail, or some values are not totals, it returns
// the other totals and an error.
func (c *Cache) Get(ctx context.Context, counters []string) ([]store.CachedTotal, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	entries, _, err := c.lookUp(ctx, counters)
	found := make([]store.CachedTotal, 0, len(entries))
	var bad []error
	for _, e := range entries {
		if e.bad == nil {
			found = append(found, e.total)
			continue
		}
		bad = append(bad, e.bad)
	}
	if err == nil {
		err = summary(bad)
	}
	return found, err
}

// A share is the counters that belong to one server, by key.
type share map[string]string

// lookUp asks all servers at once. asked contains the counters of servers that answered, found or not.
// err is about the other servers.
func (c *Cache) lookUp(ctx context.Context, counters []string) (entries map[string]entry, asked map[string]bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	shares := make(map[*server]share)
	for _, counter := range counters {
		key := c.key(totalKind, counter)
		s := pick(c.pool.all, key)
		if shares[s] == nil {
			shares[s] = make(share)
		}
		shares[s][key] = counter
	}
	entries, asked = make(map[string]entry, len(counters)), make(map[string]bool, len(counters))
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	for s, share := range shares {
		wg.Go(func() {
			got, err2 := c.lookUpShare(ctx, s, share)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err2)
			for counter, e := range got {
				entries[counter] = e
			}
			for _, counter := range share {
				asked[counter] = err2 == nil
			}
		})
	}
	wg.Wait()
	return entries, asked, errors.Join(errs...)
}

// lookUpShare returns the entries that it found even with an error.
func (c *Cache) lookUpShare(ctx context.Context, s *server, share share) (map[string]entry, error) {
	keys := make([]string, 0, len(share))
	for key := range share {
		keys = append(keys, key)
	}
	items, err := exchange(ctx, c, s, func(client *memcache.Client) (map[string]*memcache.Item, error) {
		return client.GetMulti(keys)
	})
	entries, mixed := make(map[string]entry, len(items)), false
	for key, item := range items {
		counter, ok := share[key]
		if !ok {
			mixed = true
			err = errors.Join(err, fmt.Errorf("memcached %s: %w", s.id, errMixedUp))
			continue
		}
		e := entry{item: item}
		if e.total, e.bad = c.codec.decode(item.Value, counter); e.bad == nil && e.total.Counter != counter {
			e.bad, mixed = errMixedUp, true
		}
		if e.bad != nil {
			e.bad = fmt.Errorf("memcached %s: %w", s.id, e.bad)
		}
		entries[counter] = e
	}
	if mixed {
		// A connection may be one answer behind. It went back to the idle ones, where it would stay
		// behind for ever.
		_ = s.client.Close()
	}
	return entries, err
}

// Set keeps each total, unless memcached has one with a later AsOf. There is one exception. A restarted
// server counts its cas ids from 1 again; if it restarts between gets and cas and gives out the same id
// again, an older total can win. Its AsOf still says how old it is.
func (c *Cache) Set(ctx context.Context, totals []store.CachedTotal, ttl time.Duration) error {
	if ttl <= 0 || len(totals) == 0 {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	counters := make([]string, len(totals))
	for i, total := range totals {
		counters[i] = total.Counter
	}
	entries, asked, err := c.lookUp(ctx, counters)
	errs := make([]error, len(totals))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(setters, len(totals)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(totals)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if asked[counters[i]] {
					errs[i] = c.put(ctx, totals[i], expiration(ttl), entries[counters[i]])
				}
			}
		})
	}
	wg.Wait()
	return summary(append(errs, err, ctx.Err()))
}

// summary returns the first error and the number of others: a thousand lines help nobody.
func summary(errs []error) error {
	var first error
	more := -1
	for _, err := range errs {
		if err == nil {
			continue
		}
		more++
		if first == nil {
			first = err
		}
	}
	if more > 0 {
		return fmt.Errorf("%w (and %d more)", first, more)
	}
	return first
}

// put writes the total over e unless e is later. Writing twice has the same effect as writing once: the
// second write finds the first, which is as late.
//
//	A  gets nothing            B  gets nothing
//	A  adds 12:00:01           B  adds 12:00:00: not stored
//	                           B  gets 12:00:01, later than its own: done
func (c *Cache) put(ctx context.Context, total store.CachedTotal, seconds int32, e entry) error {
	value, err := c.codec.encode(total)
	if err != nil {
		return err
	}
	item := &memcache.Item{Key: c.key(totalKind, total.Counter), Value: value, Expiration: seconds}
	for range attempts {
		if e.item != nil && e.bad == nil && e.total.AsOf.After(total.AsOf) {
			return nil
		}
		err := c.replace(ctx, item, e.item)
		if err == nil || !protocol(err) {
			return err
		}
		// Another process was faster, or the old total is gone.
		entries, _, err := c.lookUp(ctx, []string{total.Counter})
		if err != nil {
			return err
		}
		e = entries[total.Counter]
	}
	return fmt.Errorf("memcached: others set the same total %d times", attempts)
}

// replace writes item if memcached still has old, or nothing if old is nil.
func (c *Cache) replace(ctx context.Context, item, old *memcache.Item) error {
	_, err := exchange(ctx, c, pick(c.pool.all, item.Key), func(client *memcache.Client) (struct{}, error) {
		if old == nil {
			return struct{}{}, client.Add(item)
		}
		swap := *item // an exchange left behind may still read it
		swap.CasID = old.CasID
		return struct{}{}, client.CompareAndSwap(&swap)
	})
	return err
}
