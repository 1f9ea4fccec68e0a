package memcached

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"sync"
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
	token := rand.Text()
	item := &memcache.Item{Key: c.key(lockKind, counter), Value: []byte(token), Expiration: expiration(ttl)}
	switch err := c.replace(ctx, item, nil); {
	case errors.Is(err, memcache.ErrNotStored):
		return false, nil
	case err != nil:
		return false, err
	}
	c.locks.add(counter, held{token, time.Now().Add(time.Duration(item.Expiration) * time.Second)})
	return true, nil
}

// Unlock lets the next caller in. A lock that this Cache does not hold, or holds no more,
// stays with whoever holds it.
func (c *Cache) Unlock(ctx context.Context, counter string) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	token, ok := c.locks.remove(counter)
	if !ok {
		return nil
	}
	servers, err := c.pool.servers(ctx)
	if err != nil {
		return err
	}
	key := c.key(lockKind, counter)
	_, err = exchange(ctx, c, pick(servers, key), func(client *memcache.Client) (struct{}, error) {
		item, err := client.Get(key)
		if err != nil || item.Key != key || !bytes.Equal(item.Value, []byte(token)) {
			return struct{}{}, err
		}
		item.Expiration = -1 // at once, and only if it is still ours: delete has no such condition
		return struct{}{}, client.CompareAndSwap(item)
	})
	if protocol(err) {
		return nil // it had gone, or went meanwhile
	}
	return err
}

// locks are those that this process holds.
type locks struct {
	mu    sync.Mutex
	held  map[string]held
	sweep int // how many there may be before the expired ones are dropped
}

type held struct {
	token string
	until time.Time
}

// add bounds the memory of locks that are never given back: those are dropped after
// their ttl.
func (l *locks) add(counter string, h held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[string]held)
	}
	if len(l.held) >= max(l.sweep, 1024) {
		now := time.Now()
		for counter, h := range l.held {
			if now.After(h.until) {
				delete(l.held, counter)
			}
		}
		l.sweep = 2 * len(l.held)
	}
	l.held[counter] = h
}

func (l *locks) remove(counter string) (token string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.held[counter]
	delete(l.held, counter)
	return h.token, ok
}
