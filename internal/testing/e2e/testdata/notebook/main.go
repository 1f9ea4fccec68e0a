// Command notebook is countmill with a store of another module, under the scheme notebook:. The store
// is the fake of the conformance suites. A real one implements store.Store in the same place.
package main

import (
	"context"
	"os"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

func main() {
	os.Exit(command.Main(command.WithStore(backend.Store{
		Scheme: "notebook", Usage: "notebook:NAME[?shards=N]", Params: []string{"shards"}, OneProcess: true,
		Check: func(u backend.URL) error {
			_, err := u.Count("shards")
			return err
		},
		Open: func(_ context.Context, u backend.URL, c backend.StoreConfig) (store.Store, error) {
			shards, err := u.Count("shards")
			if err != nil {
				return nil, err
			}
			c.Logger.Info("notebook opened", "name", u.Rest)
			return fakestore.New(fakestore.Options{Shards: shards, Window: c.Window}), nil
		},
	})))
}
