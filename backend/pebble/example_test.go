package pebble_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/store"
)

// A directory is one database. Only one process can have it open.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "countmill-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := pebble.Open(pebble.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	_, err = pebble.Open(pebble.Config{Dir: dir})
	fmt.Println("a second one is refused:", err != nil)
	// Output: a second one is refused: true
}

// A copy is a database of its own, made while counting goes on.
func ExampleStore_Checkpoint() {
	root, err := os.MkdirTemp("", "countmill-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	s, err := pebble.Open(pebble.Config{Dir: filepath.Join(root, "data")})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Grow(context.Background(), []store.Growth{{Counter: "orders", Shards: 4}}); err != nil {
		log.Fatal(err)
	}

	monday := filepath.Join(root, "monday")
	err = s.Checkpoint(context.Background(), func(_ context.Context, dir string) error {
		return os.CopyFS(monday, os.DirFS(dir))
	})
	if err != nil {
		log.Fatal(err)
	}
	copied, err := pebble.Open(pebble.Config{Dir: monday})
	if err != nil {
		log.Fatal(err)
	}
	defer copied.Close()
	shards, err := copied.Shards(context.Background(), []string{"orders"})
	fmt.Println(shards, err)
	// Output: [4] <nil>
}
