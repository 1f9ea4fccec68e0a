//go:build nogoogle

package app

import (
	"context"
	"errors"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/store"
)

// errNoGoogle is the answer to a URL of Google's in a program without Google's libraries: they are a third of
// its packages and most of its first build (docs/evidence/benchmarks.md), and `countmill up` needs none of them.
var errNoGoogle = errors.New("this countmill was built with -tags nogoogle, without Pub/Sub and Datastore; build it without the tag")

func datastoreStore() backend.Store {
	return backend.Store{
		Scheme: "datastore", Usage: "datastore: needs another build", Params: []string{"namespace"},
		Check: func(backend.URL) error { return errNoGoogle },
		Open:  func(context.Context, backend.URL, backend.StoreConfig) (store.Store, error) { return nil, errNoGoogle },
	}
}

func pubsubBus() backend.Bus {
	return backend.Bus{
		Scheme: "pubsub", Usage: "pubsub: needs another build", Params: []string{"subscription", "dead_letter"},
		Check: func(backend.URL, backend.BusConfig) error { return errNoGoogle },
		Open: func(context.Context, backend.URL, backend.BusConfig) (backend.OpenBus, error) {
			return backend.OpenBus{}, errNoGoogle
		},
	}
}
