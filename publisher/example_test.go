package publisher_test

import (
	"context"
	"fmt"
	"log"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/testing/pipeline"
	"github.com/countmill/countmill/publisher"
)

// Add returns at once. Close sends the rest.
func ExamplePublisher_Add() {
	c := pipeline.Start() // a bus, a store and an aggregator in this process
	defer c.Close()
	ctx := context.Background()

	p, err := publisher.New(c.Bus, publisher.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for range 1000 {
		if err := p.Add("page:/home", 1); err != nil { // certainly not counted
			log.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Total("page:/home"))
	// Output: 1000
}

// Publish returns once the bus has the increments. The id makes a repeat harmless.
func ExamplePublisher_Publish() {
	c := pipeline.Start()
	defer c.Close()
	ctx := context.Background()
	p, err := publisher.New(c.Bus, publisher.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close(ctx)

	for range 2 {
		_, err := p.Publish(ctx, countmill.Increment{Counter: "orders", Delta: 1, ID: "order-7"})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(c.Total("orders"))
	// Output: 1
}

// A whole request counts once under its key, however often it is repeated.
func ExamplePublisher_PublishKeyed() {
	c := pipeline.Start()
	defer c.Close()
	ctx := context.Background()
	p, err := publisher.New(c.Bus, publisher.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close(ctx)

	request := []countmill.Increment{{Counter: "stock:apples", Delta: -3}, {Counter: "sold:apples", Delta: 3}}
	for range 2 {
		if _, err := p.PublishKeyed(ctx, "shop", "checkout-1017", request...); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(c.Total("stock:apples"), c.Total("sold:apples"))
	// Output: -3 3
}

// A Counter is a handle: its Add skips the look-up of the name.
func ExampleCounter() {
	c := pipeline.Start()
	defer c.Close()
	ctx := context.Background()
	p, err := publisher.New(c.Bus, publisher.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close(ctx)

	home, err := p.Counter("page:/home")
	if err != nil {
		log.Fatal(err)
	}
	if err := home.Add(2); err != nil {
		log.Fatal(err)
	}
	if _, err := p.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(home.Name(), c.Total(home.Name()))
	// Output: page:/home 2
}
