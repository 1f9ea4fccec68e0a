package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
)

// A Gate lets calls of Publish and one subscription into a bus of one topic, until it is closed. It helps to write a bus.
type Gate struct {
	// Life ends with Close.
	Life context.Context

	name, topic string // of the bus
	end         context.CancelFunc

	mu         sync.Mutex // guards the fields below
	closed     bool
	publishing sync.WaitGroup // added to only while not closed
	receiving  chan struct{}  // the current subscription's: closed when it has ended
	ended      error          // the error with which the latest one ended
	probed     error          // the result of its latest probe
}

// NewGate returns the open gate of a bus. Errors begin with its name.
func NewGate(name, topic string) *Gate {
	g := &Gate{name: name, topic: topic}
	g.Life, g.end = context.WithCancel(context.Background())
	return g
}

// checkLocked refuses other topics, and all of them when the bus is closed.
func (g *Gate) checkLocked(topic string) error {
	switch {
	case topic != g.topic:
		return fmt.Errorf("%s: this bus carries topic %q, not %q", g.name, g.topic, topic)
	case g.closed:
		return fmt.Errorf("%s: %w", g.name, countmill.ErrClosed)
	}
	return nil
}

// Publish runs a call of Publish.
func (g *Gate) Publish(topic string, publish func() error) error {
	g.mu.Lock()
	err := g.checkLocked(topic)
	if err == nil {
		g.publishing.Add(1)
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}
	defer g.publishing.Done()
	return g.named(publish())
}

func (g *Gate) named(err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", g.name, err)
	}
	return err
}

// An Opener opens a subscription. run sends on out until its context ends, and returns when everything here is settled or
// given back.
type Opener func(ctx context.Context) (out chan *message.Message, run func(context.Context) error, err error)

// Subscribe opens the one subscription, runs it until ctx ends or the bus is closed, and then closes the returned channel.
func (g *Gate) Subscribe(ctx context.Context, topic string, open Opener) (<-chan *message.Message, error) {
	g.mu.Lock()
	err := g.checkLocked(topic)
	if err == nil && g.receiving != nil {
		err = g.named(errors.New("this bus has a subscription already; one is enough, because the broker shares messages among processes"))
	}
	receiving := make(chan struct{})
	if err == nil {
		g.receiving = receiving
	}
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	end := func(err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.receiving, g.ended, g.probed = nil, err, nil
		close(receiving)
	}
	out, run, err := open(ctx)
	if err != nil {
		err = g.named(err)
		end(err)
		return nil, err
	}
	go func() {
		defer close(out) // last, because a receiver of the close may subscribe again
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(g.Life, cancel)()
		end(g.named(run(ctx)))
	}()
	return out, nil
}

// Probed notes the result of a probe of the subscription.
func (g *Gate) Probed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probed = g.named(err)
}

// Ready returns nil while there is a subscription whose latest probe was good, and otherwise the reason why not.
func (g *Gate) Ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.checkLocked(g.topic)
	switch {
	case err != nil:
		return err
	case g.receiving == nil:
		return cmp.Or(g.ended, fmt.Errorf("%s: not subscribed", g.name))
	}
	return g.probed
}

// Close refuses later calls, ends Life, and waits for the subscription and the calls of Publish. It returns the error
// with which the subscription ended.
func (g *Gate) Close() (err error) {
	g.mu.Lock()
	g.closed = true
	receiving := g.receiving
	g.mu.Unlock()
	g.end()
	if receiving != nil {
		<-receiving
		g.mu.Lock()
		err = g.ended
		g.mu.Unlock()
	}
	g.publishing.Wait()
	return err
}

// Every calls do every d until ctx ends.
func Every(ctx context.Context, d time.Duration, do func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			do()
		case <-ctx.Done():
			return
		}
	}
}

// BusCounts are the counters of [BusStats].
type BusCounts struct {
	Deliveries, Redeliveries, Acks, Nacks, AcksLost, Held, StreamErrors atomic.Int64
}

// Stats returns the counts.
func (c *BusCounts) Stats() BusStats {
	return BusStats{
		Deliveries: c.Deliveries.Load(), Redeliveries: c.Redeliveries.Load(), Acks: c.Acks.Load(), Nacks: c.Nacks.Load(),
		AcksLost: c.AcksLost.Load(), Held: c.Held.Load(), StreamErrors: c.StreamErrors.Load(),
	}
}
