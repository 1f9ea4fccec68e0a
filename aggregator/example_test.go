package aggregator_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/internal/testing/pipeline"
	"github.com/countmill/countmill/publisher"
)

// An aggregator folds the messages of a bus into a store until its context ends.
func ExampleAggregator_Run() {
	dir, err := os.MkdirTemp("", "countmill-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := pebble.Open(pebble.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	bus, err := inproc.New(inproc.Config{WaitForAck: true}) // Publish returns after the fold
	if err != nil {
		log.Fatal(err)
	}
	defer bus.Close()

	a, err := aggregator.New(bus, store, aggregator.Config{Linger: -1}) // a negative linger: fold at once
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()

	p, err := publisher.New(bus, publisher.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := p.Publish(ctx, countmill.Increment{Counter: "orders", Delta: 1}); err != nil {
		log.Fatal(err)
	}
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	stop()
	fmt.Println(<-ended)
	shards, err := store.ShardsOf(context.Background(), "orders")
	fmt.Println(shards.Shards[0].Count, err)
	// Output:
	// <nil>
	// 1 <nil>
}

// An intake keeps messages that the broker gave up delivering, for a person to look at.
func ExampleIntake() {
	c := pipeline.Start()
	defer c.Close()
	ctx, stop := context.WithCancel(context.Background())
	in := aggregator.NewIntake(c.Bus, c.Store, aggregator.IntakeConfig{Topic: "given-up"})
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()

	if err := c.Bus.Publish("given-up", message.NewMessage("1", []byte("no batch"))); err != nil {
		log.Fatal(err)
	}
	stop()
	fmt.Println(in.Taken(), <-ended)
	// Output: 1 <nil>
}
