package countmill_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
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

// A summingBus adds up the deltas that come in its messages.
type summingBus struct {
	mu   sync.Mutex
	sums map[string]int64
}

func (b *summingBus) Publish(_ string, messages ...*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range messages {
		batch, err := wire.Decode(m.Payload)
		if err != nil {
			return err
		}
		for _, p := range batch.Parts {
			for _, e := range p.Entries {
				b.sums[e.Counter] += e.Delta
			}
		}
	}
	return nil
}

func Example() {
	bus := &summingBus{sums: make(map[string]int64)}
	if err := count(context.Background(), bus); err != nil {
		fmt.Println(err)
	}
	fmt.Println(bus.sums)
	// Output: map[orders:1 page:/home:1000]
}
