package app

import (
	"context"
	"errors"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/memcached"
	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/store"
)

// memoryCache keeps totals in this process.
func memoryCache() backend.Cache {
	return backend.Cache{
		Scheme: "memory", Usage: "memory:", Params: []string{"totals"},
		Check: func(u backend.URL) error {
			_, err := u.Count("totals")
			return errors.Join(u.Bare(), err)
		},
		Open: func(u backend.URL, _ store.Store) (store.Cache, func() error, error) {
			n, err := u.Count("totals")
			if err != nil {
				return nil, nil, err
			}
			c, err := memory.New(memory.Config{Totals: n})
			if err != nil {
				return nil, nil, err
			}
			return c, nil, nil
		},
	}
}

// memcachedCache keeps totals in memcached servers, which processes share.
func memcachedCache() backend.Cache {
	return backend.Cache{
		Scheme: "memcached", Usage: "memcached://HOST:PORT[,HOST:PORT...]",
		Check: func(u backend.URL) error {
			_, err := u.Hosts(memcached.CheckServer)
			return err
		},
		Open: func(u backend.URL, s store.Store) (store.Cache, func() error, error) {
			servers, err := u.Hosts(memcached.CheckServer)
			if err != nil {
				return nil, nil, err
			}
			prefix, key := s.CacheIdentity()
			c, err := memcached.Open(memcached.Config{Servers: servers, Prefix: prefix, Key: key})
			if err != nil {
				return nil, nil, err
			}
			return c, c.Close, nil
		},
		Examine: func(ctx context.Context, u backend.URL, r *backend.Report) {
			if servers, err := u.Hosts(memcached.CheckServer); err == nil { // Check has refused others
				memcached.Examine(ctx, servers, r)
			}
		},
	}
}
