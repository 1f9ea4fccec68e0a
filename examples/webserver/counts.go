package main

import (
	"context"
	"errors"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
)

// counts is a countmill inside this process.
type counts struct {
	publisher *publisher.Publisher
	reader    *reader.Reader

	store *pebble.Store
	bus   *inproc.Bus
	stop  context.CancelFunc // of the aggregator
	ended chan struct{}      // closed when the aggregator has ended, with its error in err
	err   error
}

// openCounts opens the counters in dir and begins to fold.
func openCounts(dir string) (*counts, error) {
	store, err := pebble.Open(pebble.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	bus, busErr := inproc.New(inproc.Config{WaitForAck: true})
	if busErr != nil {
		return nil, errors.Join(busErr, store.Close())
	}
	c := &counts{store: store, bus: bus, ended: make(chan struct{})}
	folder, err1 := aggregator.New(bus, store, aggregator.Config{Linger: -1})
	var err2, err3 error
	c.publisher, err2 = publisher.New(bus, publisher.Config{})
	c.reader, err3 = reader.New(store, nil, reader.Config{})
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, errors.Join(err, bus.Close(), store.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go func() {
		defer close(c.ended)
		c.err = folder.Run(ctx)
	}()
	return c, nil
}

// close sends what was added, folds it, and only then closes what is underneath. After
// nil every increment that Add accepted is on disk.
func (c *counts) close(ctx context.Context) error {
	select {
	case <-c.ended: // by itself: a publisher would wait for it in vain
		return errors.Join(c.err, c.bus.Close(), c.publisher.Close(ctx), c.store.Close())
	default:
	}
	err := c.publisher.Close(ctx)
	c.stop()
	<-c.ended
	return errors.Join(err, c.err, c.bus.Close(), c.store.Close())
}
