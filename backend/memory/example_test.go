package memory_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/countmill/countmill/backend/memory"
	"github.com/countmill/countmill/store"
)

// The cache keeps the newest total of a counter, and may forget it at any time.
func Example() {
	cache, err := memory.New(memory.Config{Totals: 1000})
	if err != nil {
		log.Fatal(err)
	}
	ctx, now := context.Background(), time.Now()
	for _, t := range []store.CachedTotal{{Counter: "orders", Total: 8, AsOf: now}, {Counter: "orders", Total: 7, AsOf: now.Add(-time.Second)}} {
		if err := cache.Set(ctx, []store.CachedTotal{t}, time.Minute); err != nil {
			log.Fatal(err)
		}
	}
	totals, err := cache.Get(ctx, []string{"orders", "nobody's"})
	fmt.Println(len(totals), totals[0].Total, err)
	// Output: 1 8 <nil>
}
