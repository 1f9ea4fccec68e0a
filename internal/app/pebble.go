package app

import (
	"context"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/store"
)

// pebbleStore keeps counters in a directory of this machine.
func pebbleStore() backend.Store {
	return backend.Store{
		Scheme: "pebble", Usage: "pebble:DIR", Params: []string{"namespace"}, OneProcess: true,
		Check: func(u backend.URL) error {
			_, err := u.Dir()
			return err
		},
		Open: func(_ context.Context, u backend.URL, c backend.StoreConfig) (store.Store, error) {
			dir, err := u.Dir()
			if err != nil {
				return nil, err
			}
			s, err := pebble.Open(pebble.Config{Dir: dir, Namespace: u.Params.Get("namespace"), Window: c.Window, Logger: c.Logger})
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Examine: func(ctx context.Context, u backend.URL, _ backend.StoreConfig, r *backend.Report) {
			if dir, err := u.Dir(); err == nil { // Check has refused others
				pebble.Examine(ctx, pebble.Exam{Dir: dir}, r)
			}
		},
	}
}
