package backend_test

import (
	"context"
	"fmt"
	"log"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// A store of another module is a value that opens it by its URL; command.WithStore adds it to the
// command line.
func ExampleStore() {
	notebook := backend.Store{
		Scheme: "notebook", Usage: "notebook:NAME[?shards=N]", Params: []string{"shards"}, OneProcess: true,
		Open: func(_ context.Context, u backend.URL, c backend.StoreConfig) (store.Store, error) {
			shards, err := u.Count("shards")
			if err != nil {
				return nil, err
			}
			return protocoltest.New(protocoltest.Options{Shards: shards, Window: c.Window}), nil
		},
	}
	u, err := backend.Parse("notebook:mine?shards=3", notebook.Params)
	if err != nil {
		log.Fatal(err)
	}
	s, err := notebook.Open(context.Background(), u, backend.StoreConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(u.Rest, s.Limits().Shards)
	// Output: mine 3
}

// Parse refuses a parameter that the backend does not know.
func ExampleParse() {
	_, err := backend.Parse("notebook:mine?pages=3", []string{"shards"})
	fmt.Println(err)
	// Output: unknown parameter "pages" of notebook: (valid: shards)
}

func ExampleURL_Dir() {
	u, err := backend.Parse("pebble:///var/lib/countmill?namespace=test", []string{"namespace"})
	if err != nil {
		log.Fatal(err)
	}
	dir, err := u.Dir()
	fmt.Println(dir, u.Params.Get("namespace"), err)
	// Output: /var/lib/countmill test <nil>
}
