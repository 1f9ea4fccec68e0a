package admin_test

import (
	"context"
	"fmt"
	"log"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/testing/pipeline"
	"github.com/countmill/countmill/store"
)

// A reset with an id is the same reset, however often it is repeated.
func ExampleAdmin_Reset() {
	c := pipeline.Start() // a bus, a store and an aggregator in this process
	defer c.Close()
	a, err := admin.New(c.Reader, c.Store, admin.Config{})
	if err != nil {
		log.Fatal(err)
	}
	c.Count(countmill.Increment{Counter: "orders", Delta: 7})

	for range 2 {
		done, err := a.Reset(context.Background(), "orders", "2026-01")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("removed", done.Removed)
	}
	fmt.Println("total", c.Total("orders"))
	// Output:
	// removed 7
	// removed 7
	// total 0
}

// A deleted counter is hidden until it is incremented again.
func ExampleAdmin_Delete() {
	c := pipeline.Start()
	defer c.Close()
	a, err := admin.New(c.Reader, c.Store, admin.Config{})
	if err != nil {
		log.Fatal(err)
	}
	c.Count(countmill.Increment{Counter: "mistyped", Delta: 7})

	for _, counter := range []string{"mistyped", "nobody's"} {
		done, err := a.Delete(context.Background(), counter)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(counter, done.Removed, done.Existed)
	}
	// Output:
	// mistyped 7 true
	// nobody's 0 false
}

// A verifier finds shards that no total includes.
func ExampleVerifier() {
	c := pipeline.Start()
	defer c.Close()
	c.Count(countmill.Increment{Counter: "orders", Delta: 7})

	v := admin.NewVerifier(c.Store, c.Store)
	page, err := v.Page(context.Background(), "", "", 100, false)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(page.Shards, "shard,", len(page.Problems), "problems")
	// Output: 1 shard, 0 problems
}

// A person looks at dead letters, and counts or discards them.
func ExampleDeadLetters() {
	c := pipeline.Start()
	defer c.Close()
	ctx := context.Background()
	err := c.Store.PutDeadLetters(ctx, []store.DeadLetter{{Key: "k", Source: "1", Payload: []byte("no batch"), Reason: "not a batch"}})
	if err != nil {
		log.Fatal(err)
	}

	letters := admin.NewDeadLetters(c.Store)
	page, err := letters.List(ctx, "", 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range page.DeadLetters {
		done, err := letters.Discard(ctx, []string{l.Key})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(l.Reason+":", done[0].Result)
	}
	// Output: not a batch: discarded
}
