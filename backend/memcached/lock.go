package memcached

import (
	"context"
	"errors"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Lock adds an item, which memcached does for the first caller only. It holds for ttl at
// least, unless memcached forgets it; where the answer of the add was lost, nobody has
// the lock until then.
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

// Unlock lets the next caller in. It does not look whose lock it is: after the ttl it may be
// another process's, and then two processes read one total.
func (c *Cache) Unlock(ctx context.Context, counter string) error {
	return c.remove(ctx, lockKind, []string{counter})
}
