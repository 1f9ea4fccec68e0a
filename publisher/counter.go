package publisher

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/countmill/countmill"
)

// Add adds delta to the counter. It never waits. The error matches
// countmill.ErrInvalid, ErrOverloaded, ErrClosed or, where this machine's clock cannot be
// right, ErrUnavailable; nothing of the increment is then counted. It allocates nothing for a counter that was used a short while ago.
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

// A Counter is a handle whose Add skips the look-up. It may be used by many goroutines
// and kept for as long as its Publisher; it holds no memory in the open batch while it
// is not used.
type Counter struct {
	p     *Publisher
	name  string
	place uint64
	cell  atomic.Pointer[cell]
}

// noCell is never listed: it sends a handle's first increment the slow way.
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

// Name is the counter's name.
func (c *Counter) Name() string { return c.name }

// Add is Publisher.Add for this counter.
func (c *Counter) Add(delta int64) error {
	if c.cell.Load().add(delta) {
		return nil
	}
	// Unlisted, perhaps forgotten: the slow way finds the cell that stands for the
	// counter now.
	cell, err := c.p.addSlow(c.place, c.name, delta)
	if err == nil {
		c.cell.Store(cell)
	}
	return err
}
