package publisher

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/countmill/countmill"
)

// Add adds delta to the counter. It never waits, and allocates nothing for a recently used
// counter. It is safe for concurrent use. If it returns an error, nothing is counted. The error
// matches countmill.ErrInvalid, ErrOverloaded, ErrClosed, or ErrUnavailable if this machine's
// clock must be wrong.
func (p *Publisher) Add(counter string, delta int64) error {
	place := maphash.String(p.seed, counter)
	if c := p.stripes[stripeOf(place)].table.Load().find(place, counter); c != nil && c.add(delta) {
		return nil
	}
	_, err := p.addSlow(place, counter, delta)
	return err
}

func (p *Publisher) addSlow(place uint64, counter string, delta int64) (*cell, error) {
	if err := countmill.CheckCounter(counter); err != nil {
		return nil, err
	}
	if err := countmill.CheckDelta(delta); err != nil {
		return nil, err
	}
	c, first, err := p.stripes[stripeOf(place)].addSlow(place, counter, delta)
	if err != nil {
		p.refused.Add(1)
		return nil, err
	}
	if first || p.open.filled() {
		p.signal()
	}
	return c, nil
}

// A Counter is a handle whose Add skips the look-up. It is safe for concurrent use, and may be
// kept for as long as its Publisher. While it is not used, it takes no memory in the open batch.
type Counter struct {
	p     *Publisher
	name  string
	place uint64
	cell  atomic.Pointer[cell]
}

// noCell is never listed, so that a handle's first increment takes the slow path.
var noCell cell

// Counter returns a handle for the counter. The error matches countmill.ErrInvalid.
func (p *Publisher) Counter(name string) (*Counter, error) {
	if err := countmill.CheckCounter(name); err != nil {
		return nil, err
	}
	c := &Counter{p: p, name: name, place: maphash.String(p.seed, name)}
	c.cell.Store(&noCell)
	return c, nil
}

// Name returns the counter's name.
func (c *Counter) Name() string { return c.name }

// Add is Publisher.Add for this counter.
func (c *Counter) Add(delta int64) error {
	if c.cell.Load().add(delta) {
		return nil
	}
	// The cell is unlisted, or a sweep has removed it: the slow path finds the counter's present
	// cell.
	cell, err := c.p.addSlow(c.place, c.name, delta)
	if err == nil {
		c.cell.Store(cell)
	}
	return err
}
