package countmill_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/testing/pipeline"
	"github.com/countmill/countmill/publisher"
)

// A service counts with package publisher. docs/howto/use-from-go.md shows this function.
func count(ctx context.Context, bus publisher.Bus) error {
	p, err := publisher.New(bus, publisher.Config{})
	if err != nil {
		return err
	}
	home, err := p.Counter("page:/home") // a handle: Add skips the look-up
	if err != nil {
		return err
	}
	for range 1000 {
		if err := home.Add(1); err != nil { // ErrOverloaded or ErrClosed: certainly not counted
			return err
		}
	}
	// Publish returns when the bus has it. The id makes a repeat harmless.
	_, err = p.Publish(ctx, countmill.Increment{Counter: "orders", Delta: 1, ID: "order-7"})
	if err != nil {
		return err
	}
	return p.Close(ctx) // sends the rest, and says so if it could not
}

func Example() {
	c := pipeline.Start() // a bus, a store and an aggregator in this process
	defer c.Close()
	if err := count(context.Background(), c.Bus); err != nil {
		fmt.Println(err)
	}
	fmt.Println("page:/home", c.Total("page:/home"))
	fmt.Println("orders", c.Total("orders"))
	// Output:
	// page:/home 1000
	// orders 1
}

// Limits are checked before anything is sent.
func ExampleCheckCounter() {
	fmt.Println(countmill.CheckCounter("page:/home"))
	fmt.Println(countmill.CheckCounter("__x__"))
	// Output:
	// <nil>
	// counter has the reserved form __x__ (limit: not __x__)
}

func ExampleIncrement_Check() {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	inc := countmill.Increment{Counter: "orders", Delta: 1, ID: "order-7", Time: now.Add(-9 * 24 * time.Hour)}
	err := inc.Check(now, countmill.DefaultDedupWindow)
	fmt.Println(errors.Is(err, countmill.ErrInvalid))
	// Output: true
}

// A FieldError names the field that is wrong, and its limit.
func ExampleFieldError() {
	err := countmill.CheckDelta(0)
	var field *countmill.FieldError
	if errors.As(err, &field) {
		fmt.Printf("%s %s, limit: %s\n", field.Field, field.Problem, field.Limit)
	}
	// Output: delta is 0, limit: not 0
}

// The same id with another delta is not counted, and the error names it.
func ExampleConflictsError() {
	c := pipeline.Start()
	defer c.Close()
	ctx := context.Background()
	p, err := publisher.New(c.Bus, publisher.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close(ctx)

	for _, delta := range []int64{1, 5} {
		_, err = p.Publish(ctx, countmill.Increment{Counter: "orders", Delta: delta, ID: "order-7"})
		var left *countmill.ConflictsError
		if errors.As(err, &left) {
			fmt.Println("not counted:", left.Conflicts[0].ID)
		}
	}
	fmt.Println(c.Total("orders"))
	// Output:
	// not counted: order-7
	// 1
}
