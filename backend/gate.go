package backend

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/countmill/countmill"
)

// A Gate lets calls of Publish and one subscription into a bus, until it is closed. It helps to write a bus.
type Gate struct {
	// Life ends with Close.
	Life context.Context

	name string // of the bus, for errors
	end  context.CancelFunc

	mu         sync.Mutex // guards the fields below
	closed     bool
	publishing sync.WaitGroup // added to only while not closed
	receiving  chan struct{}  // the current subscription's: closed when it has ended
	ended      error          // the error with which the latest one ended
}

// NewGate returns the open gate of a bus.
func NewGate(name string) *Gate {
	g := &Gate{name: name}
	g.Life, g.end = context.WithCancel(context.Background())
	return g
}

// Publish begins a call of Publish, which has to call done at its end.
func (g *Gate) Publish() (done func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, fmt.Errorf("%s: %w", g.name, countmill.ErrClosed)
	}
	g.publishing.Add(1)
	return g.publishing.Done, nil
}

// Subscribe begins the one subscription, which has to call done at its end, with nil or the reason.
func (g *Gate) Subscribe() (done func(error), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return nil, fmt.Errorf("%s: %w", g.name, countmill.ErrClosed)
	case g.receiving != nil:
		return nil, fmt.Errorf("%s: this bus has a subscription already; one is enough, because the broker shares messages among processes", g.name)
	}
	receiving := make(chan struct{})
	g.receiving = receiving
	return func(err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.receiving, g.ended = nil, err
		close(receiving)
	}, nil
}

// Ready returns nil while there is a subscription, and otherwise the reason why there is none.
func (g *Gate) Ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return fmt.Errorf("%s: %w", g.name, countmill.ErrClosed)
	case g.receiving == nil && g.ended != nil:
		return g.ended
	case g.receiving == nil:
		return fmt.Errorf("%s: not subscribed", g.name)
	}
	return nil
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

// BusCounts count what [BusStats] tells.
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
