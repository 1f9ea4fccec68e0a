// Command notebook is countmill with a store of another module, under the scheme notebook:. The store
// runs over the engine in memory. A real engine has the same place.
package main

import (
	"context"
	"os"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/command"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
)

func main() {
	os.Exit(command.Main(command.WithStore(backend.Store{
		Scheme: "notebook", Usage: "notebook:NAME[?shards=N]", Params: []string{"shards"}, OneProcess: true,
		Check: func(u backend.URL) error {
			_, err := u.Count("shards")
			return err
		},
		Open: func(ctx context.Context, u backend.URL, c backend.StoreConfig) (store.Store, error) {
			shards, err := u.Count("shards")
			if err != nil {
				return nil, err
			}
			c.Logger.Info("notebook opened", "name", u.Rest)
			e := memory.New(protocol.Kinds, memory.Options{Limits: engine.Limits{Exclusive: true}}).Open()
			return protocol.Open(ctx, e, protocol.Config{Window: c.Window, Create: c.Create, Shards: shards, Logger: c.Logger})
		},
	})))
}
