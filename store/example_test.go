package store_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// open opens a real store in a temporary directory.
func open() (s store.Store, end func()) {
	dir, err := os.MkdirTemp("", "countmill-example-")
	if err != nil {
		log.Fatal(err)
	}
	if s, err = pebble.Open(pebble.Config{Dir: dir}); err != nil {
		log.Fatal(err)
	}
	return s, func() {
		if err := errors.Join(s.Close(), os.RemoveAll(dir)); err != nil {
			log.Fatal(err)
		}
	}
}

// A commit adds to shards and inserts the markers of its parts, so it applies once.
func ExampleCommit() {
	s, end := open()
	defer end()
	ctx := context.Background()
	now := time.Now()
	part := wire.CutIdentified(countmill.Increment{Counter: "orders", Delta: 3, ID: "order-7"})

	commit := &store.Commit{
		Markers: []store.Marker{{ID: part.ID, Fingerprint: part.Fingerprint(), Fold: 1, At: now, ExpireAt: now.Add(countmill.DefaultDedupWindow + store.MarkerSlack)}},
		Adds:    []store.ShardDelta{store.NewShardDelta("orders", 0, 3)},
		Growths: []store.Growth{{Counter: "orders", Shards: 1}},
	}
	for range 2 {
		_, err := s.Fold(ctx, commit)
		fmt.Println(err == nil, errors.Is(err, store.ErrMarkerExists))
	}
	// Output:
	// true false
	// false true
}

// A view reads records and shards as they were at one moment.
func ExampleView() {
	s, end := open()
	defer end()
	ctx := context.Background()
	view := s.View()
	defer view.Close()

	if _, err := view.Lookup(ctx, []store.Key{{Counter: "orders", Shard: store.RecordKey}}); err != nil {
		log.Fatal(err)
	}
	if err := s.Grow(ctx, []store.Growth{{Counter: "orders", Shards: 4}}); err != nil { // after the view's moment
		log.Fatal(err)
	}
	values, err := view.Lookup(ctx, []store.Key{{Counter: "orders", Shard: store.RecordKey}})
	fmt.Println(values[0].Exists, err)

	later := s.View()
	defer later.Close()
	values, err = later.Lookup(ctx, []store.Key{{Counter: "orders", Shard: store.RecordKey}})
	fmt.Println(values[0].Exists, values[0].Shards, err)
	// Output:
	// false <nil>
	// true 4 <nil>
}

// The database keeps the deduplication window. Each change gets a new version.
func ExampleSettings() {
	s, end := open()
	defer end()
	settings, err := s.SetWindow(context.Background(), 48*time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(settings.Version, settings.Window, settings.Refuses(time.Now()))
	// Output: 2 48h0m0s false
}

// The reason of a dead letter says whether its id is taken for good.
func ExampleDeadLetter() {
	s, end := open()
	defer end()
	ctx := context.Background()
	err := s.PutDeadLetters(ctx, []store.DeadLetter{{Key: "k", Source: "order-7", Reason: store.ReasonIDReused}})
	if err != nil {
		log.Fatal(err)
	}
	letters, err := s.ListDeadLetters(ctx, "", 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(letters[0].Source, letters[0].IDTaken())
	// Output: order-7 true
}
