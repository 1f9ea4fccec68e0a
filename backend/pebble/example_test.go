package pebble_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/countmill/countmill/backend/pebble"
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

// A backup is a database of its own, made while counting goes on.
func ExampleStore_Backup() {
	root, err := os.MkdirTemp("", "countmill-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	s, err := pebble.Open(pebble.Config{Dir: filepath.Join(root, "data"), BackupRoot: root})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if _, err := s.GrowCounter(context.Background(), "orders", 4); err != nil {
		log.Fatal(err)
	}

	dir, err := s.Backup(context.Background(), "monday")
	if err != nil {
		log.Fatal(err)
	}
	backup, err := pebble.Open(pebble.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer backup.Close()
	shards, err := backup.Shards(context.Background(), []string{"orders"})
	fmt.Println(filepath.Base(dir), shards, err)
	// Output: monday [4] <nil>
}
