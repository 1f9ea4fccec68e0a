package reader_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/internal/testing/pipeline"
	"github.com/countmill/countmill/reader"
)

// A staleness of 0 reads the store. A larger one accepts an older total from the cache, if there is one.
func ExampleReader_Totals() {
	c := pipeline.Start() // a bus, a store and an aggregator in this process
	defer c.Close()
	cache, err := memory.New(memory.Config{})
	if err != nil {
		log.Fatal(err)
	}
	r, err := reader.New(c.Store, cache, reader.Config{})
	if err != nil {
		log.Fatal(err)
	}

	c.Count(countmill.Increment{Counter: "orders", Delta: 3})
	for range 2 {
		totals, err := r.Totals(context.Background(), []string{"orders", "nobody's"}, time.Hour)
		if err != nil {
			log.Fatal(err)
		}
		for _, t := range totals {
			fmt.Println(t.Counter, t.Total, t.Exists, t.Source)
		}
	}
	// Output:
	// orders 3 true store
	// nobody's 0 false store
	// orders 3 true cache
	// nobody's 0 false cache
}

// List goes through all counters with a prefix, page by page.
func ExampleReader_List() {
	c := pipeline.Start()
	defer c.Close()
	r, err := reader.New(c.Store, nil, reader.Config{})
	if err != nil {
		log.Fatal(err)
	}
	c.Count(countmill.Increment{Counter: "page:/", Delta: 1}, countmill.Increment{Counter: "page:/home", Delta: 2},
		countmill.Increment{Counter: "orders", Delta: 3})

	for after, more := "", true; more; more = after != "" {
		page, err := r.List(context.Background(), "page:", after, 1)
		if err != nil {
			log.Fatal(err)
		}
		for _, t := range page.Totals {
			fmt.Println(t.Counter, t.Total)
		}
		after = page.Next
	}
	// Output:
	// page:/ 1
	// page:/home 2
}
