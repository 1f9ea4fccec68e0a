package publisher

import (
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/countmill/countmill/wire"
)

// A cell is the sum of one counter in the open batch.
//
// Its word holds, from the top, the sum of small deltas (42 bits), how many there were
// (20 bits), whether the cell has lanes, and whether it is listed in the open batch. All
// change in one step, so an increment that was added to a listed cell is certainly in the open
// batch, and one that meets an unlisted cell has changed nothing and goes the slow way,
// under the stripe's lock. What does not fit the word gathers in wide and count.
//
// A cell is listed and unlisted under its stripe's lock only.
//
// What changes lies on the first line of memory, and what a look-up compares on the second:
// one CPU finds the cell without taking the line from another that adds to it.
type cell struct {
	word  atomic.Int64
	order uint64 // wire.Order of its counter
	wide  int64  // under the stripe's lock
	count int64  // under the stripe's lock
	lanes atomic.Pointer[lanes]
	fails atomic.Uint32 // adds that another came before
	used  bool          // listed since the last sweep; under the stripe's lock

	_       [16]byte
	counter string
}

// newCell copies the counter: the caller's string may be a piece of something large. Most
// names lie beside their cell, where a look-up that compares them has just been.
func newCell(counter string) *cell {
	order := wire.Order(counter)
	if len(counter) > shortName {
		return &cell{order: order, counter: strings.Clone(counter)}
	}
	both := &struct {
		cell
		name [shortName]byte
	}{cell: cell{order: order}}
	copy(both.name[:], counter)
	both.counter = unsafe.String(&both.name[0], len(counter))
	return &both.cell
}

// shortName fills a cell up to a size that memory comes in, two lines of 64 bytes.
const shortName = 48

const (
	listed    = 1 << 0
	spread    = 1 << 1
	countOne  = 1 << 2
	countMask = (1<<20 - 1) << 2
	sumShift  = 22
	maxNarrow = 1<<41 - 1
)

// add adds delta if that takes nothing but a word. False: nothing has changed.
func (c *cell) add(delta int64) bool {
	if delta == 0 || delta > maxNarrow || delta < -maxNarrow {
		return false
	}
	for {
		w := c.word.Load()
		if w&spread != 0 {
			return c.addToLane(delta)
		}
		next, ok := added(w, delta)
		if !ok {
			return false
		}
		if c.word.CompareAndSwap(w, next) {
			return true
		}
		c.fails.Add(1)
	}
}

// added is a listed word with delta, if that fits.
func added(w, delta int64) (next int64, ok bool) {
	sum := w>>sumShift + delta
	if w&listed == 0 || w&countMask == countMask || sum > maxNarrow || sum < -maxNarrow {
		return w, false
	}
	return w + delta<<sumShift + countOne, true
}

// overflows reports whether a+b leaves +-wire.MaxSum; both are within.
func overflows(a, b int64) bool {
	if b > 0 {
		return a > wire.MaxSum-b
	}
	return a < -wire.MaxSum-b
}

// mayOverflow reports whether the wide sum can leave its bounds by delta and whatever the
// words hold by the time it is added.
func (c *cell) mayOverflow(delta int64) bool {
	const words = (1 + 1<<laneBits) * maxNarrow
	return overflows(c.wide, max(delta, 0)+words) || overflows(c.wide, min(delta, 0)-words)
}

// An item is an entry on its way into a seal, with its wire.Order.
type item struct {
	order   uint64
	counter string
	delta   int64
}

// A table finds cells without a lock. It is open addressing with linear probing; slots
// are only ever filled, under the stripe's lock, and a sweep makes a new table. Places come
// from a hash with a seed of its own for each Publisher: nobody can make up counters that
// stand in each other's way.
type table struct {
	mask  uint64
	slots []slot
}

// A slot knows its cell's place, so that passing by another counter's cell does not touch
// it: with a million counters each touch is a wait for memory.
type slot struct {
	place uint64 // written before the cell
	cell  atomic.Pointer[cell]
}

// newTable has room for n cells at half load.
func newTable(n int) *table {
	size := 16
	for size < 2*n {
		size *= 2
	}
	return &table{mask: uint64(size - 1), slots: make([]slot, size)}
}

func (t *table) find(place uint64, counter string) *cell {
	if t == nil {
		return nil
	}
	for i := place; ; i++ {
		at := &t.slots[i&t.mask]
		c := at.cell.Load()
		if c == nil || at.place == place && c.counter == counter {
			return c
		}
	}
}

func (t *table) insert(place uint64, c *cell) {
	for i := place; ; i++ {
		if at := &t.slots[i&t.mask]; at.cell.Load() == nil {
			at.place = place
			at.cell.Store(c)
			return
		}
	}
}
