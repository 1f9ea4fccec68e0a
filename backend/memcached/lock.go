package memcached

import (
	"context"
	"errors"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Lock adds an item; memcached accepts it from the first caller only. The lock holds for at least ttl,
// unless memcached evicts it. If the answer of the add is lost, nobody has the lock until ttl has
// passed.
func (c *Cache) Lock(ctx context.Context, counter string, ttl time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	item := &memcache.Item{Key: c.key(lockKind, counter), Expiration: expiration(ttl)}
	err := c.replace(ctx, item, nil)
	if errors.Is(err, memcache.ErrNotStored) {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases the lock, whoever holds it. After the ttl that may be another process; then two
// processes read one total.
func (c *Cache) Unlock(ctx context.Context, counter string) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	key := c.key(lockKind, counter)
	_, err := exchange(ctx, c, pick(c.pool.all, key), func(client *memcache.Client) (struct{}, error) {
		return struct{}{}, client.Delete(key)
	})
	if errors.Is(err, memcache.ErrCacheMiss) {
		return nil
	}
	return err
}
