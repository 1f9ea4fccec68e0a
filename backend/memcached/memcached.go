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
	// setters is how many totals of one Set are written at once: memcached's text
	// protocol sets one an exchange. A guess.
	setters = 16

	// attempts is how often a Set tries a total that others set at the same time.
	attempts = 10
)

var errMixedUp = errors.New("the answer belongs to another key")

// A Cache keeps totals in memcached. All methods may be called at once; each ends within
// Config.Timeout.
type Cache struct {
	cfg  Config
	seal sealer
	pool *pool
}

var _ store.Cache = (*Cache)(nil)

// Open checks the configuration and returns at once: names are resolved and servers
// connected when they are first needed, so that a cache that is away holds up nothing.
func Open(cfg Config) (*Cache, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("memcached: %w", err)
	}
	seal, err := newSealer(cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("memcached: Key: %w", err)
	}
	return &Cache{cfg: cfg, seal: seal, pool: newPool(cfg)}, nil
}

// Close waits for what runs, a few Timeouts at most, and closes the connections. Calls
// that come later are errors.
func (c *Cache) Close() error {
	c.pool.close()
	return nil
}

// An entry is what memcached has under a counter's key.
type entry struct {
	item  *memcache.Item
	total store.CachedTotal
	bad   error // why the value is not a total of the counter; nil where it is
}

// Get returns the totals it has. Where some servers fail, or values are not totals, it returns
// the others, and an error.
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

// lookUp asks all servers at once. asked says which counters were answered for, found or
// not; err is of the others.
func (c *Cache) lookUp(ctx context.Context, counters []string) (entries map[string]entry, asked map[string]bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	servers, err := c.pool.servers(ctx)
	if err != nil {
		return nil, nil, err
	}
	shares := make(map[*server]share)
	for _, counter := range counters {
		key := c.key(totalKind, counter)
		s := pick(servers, key)
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

// lookUpShare returns what was found even with an error.
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
		if e.total, e.bad = c.seal.decode(item.Value, counter); e.bad == nil && e.total.Counter != counter {
			e.bad, mixed = errMixedUp, true
		}
		if e.bad != nil {
			e.bad = fmt.Errorf("memcached %s: %w", s.id, e.bad)
		}
		entries[counter] = e
	}
	if mixed {
		// A connection may be one answer behind: it went back to the idle ones, and would
		// stay behind for ever.
		_ = s.client.Close()
	}
	return entries, err
}

// Set keeps each total, unless memcached has one with a later AsOf. A restarted server
// counts its cas ids from 1 again, so an old total can win there if a server restarts
// between gets and cas and gives the same id again; its AsOf still says how old it is.
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

// Drop forgets the totals of the counters.
func (c *Cache) Drop(ctx context.Context, counters []string) error {
	return c.remove(ctx, totalKind, counters)
}

// remove deletes the items of that kind.
func (c *Cache) remove(ctx context.Context, kind string, counters []string) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	servers, err := c.pool.servers(ctx)
	if err != nil {
		return err
	}
	errs := []error{ctx.Err()}
	for _, counter := range counters {
		key := c.key(kind, counter)
		_, err := exchange(ctx, c, pick(servers, key), func(client *memcache.Client) (struct{}, error) {
			return struct{}{}, client.Delete(key)
		})
		if !errors.Is(err, memcache.ErrCacheMiss) {
			errs = append(errs, err)
		}
	}
	return summary(errs)
}

// summary is the first error and how many more there are: a thousand lines help nobody.
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

// put writes the total over e, as long as e is not later. To do it twice is to do it once:
// the second write finds the first, as late as itself.
//
//	A  gets nothing            B  gets nothing
//	A  adds 12:00:01           B  adds 12:00:00: not stored
//	                           B  gets 12:00:01, later than its own: done
func (c *Cache) put(ctx context.Context, total store.CachedTotal, seconds int32, e entry) error {
	value, err := c.seal.encode(total)
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
		// Another one was quicker, or the old total has gone.
		entries, _, err := c.lookUp(ctx, []string{total.Counter})
		if err != nil {
			return err
		}
		e = entries[total.Counter]
	}
	return fmt.Errorf("memcached: others set the same total %d times", attempts)
}

// replace writes item where old still is what memcached has, or nothing for nil. It asks
// the server that the key belongs to now: where that changed, old is unknown to it.
func (c *Cache) replace(ctx context.Context, item, old *memcache.Item) error {
	servers, err := c.pool.servers(ctx)
	if err != nil {
		return err
	}
	_, err = exchange(ctx, c, pick(servers, item.Key), func(client *memcache.Client) (struct{}, error) {
		if old == nil {
			return struct{}{}, client.Add(item)
		}
		swap := *item // one left behind may still be read
		swap.CasID = old.CasID
		return struct{}{}, client.CompareAndSwap(&swap)
	})
	return err
}
