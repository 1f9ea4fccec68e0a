// Package pipeline runs a bus, a store and an aggregator in this process, for examples that need
// increments to be counted. Tests only.
package pipeline

import (
	"context"
	"errors"
	"os"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
)

// A Pipeline counts all that is published on its bus.
type Pipeline struct {
	Bus        *inproc.Bus // whose Publish waits for the fold
	Store      *pebble.Store
	Aggregator *aggregator.Aggregator
	Reader     *reader.Reader

	dir   string
	stop  context.CancelFunc
	ended chan error
}

// Start opens everything in a new temporary directory. It panics if it cannot: an example has
// nobody to report it to.
func Start() *Pipeline {
	dir, err := os.MkdirTemp("", "countmill-example-")
	must(err)
	p := &Pipeline{dir: dir, ended: make(chan error, 1)}
	p.Store, err = pebble.Open(pebble.Config{Dir: dir})
	must(err)
	p.Bus, err = inproc.New(inproc.Config{WaitForAck: true})
	must(err)
	p.Aggregator, err = aggregator.New(p.Bus, p.Store, aggregator.Config{Linger: -1})
	must(err)
	p.Reader, err = reader.New(p.Store, nil, reader.Config{})
	must(err)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() { p.ended <- p.Aggregator.Run(ctx) }()
	return p
}

// Count publishes increments and waits until they are in the store.
func (p *Pipeline) Count(incs ...countmill.Increment) {
	pub, err := publisher.New(p.Bus, publisher.Config{})
	must(err)
	_, err = pub.Publish(context.Background(), incs...)
	must(errors.Join(err, pub.Close(context.Background())))
}

// Total is a counter's total. It panics if there is none.
func (p *Pipeline) Total(counter string) int64 {
	totals, err := p.Reader.Totals(context.Background(), []string{counter}, 0)
	must(err)
	return totals[0].Total
}

// Close ends everything and removes the directory.
func (p *Pipeline) Close() {
	p.stop()
	err := <-p.ended
	must(errors.Join(err, p.Bus.Close(), p.Store.Close(), os.RemoveAll(p.dir)))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
