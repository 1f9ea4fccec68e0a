package publisher

import (
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/countmill/countmill/wire"
)

// A cell is the sum of one counter in the open batch.
//
// Its word holds, from the top, the sum of small deltas (42 bits), their number (20 bits),
// whether the cell has lanes, and whether it is listed in the open batch. One atomic step changes
// all of them. So an increment that was added to a listed cell is certainly in the open batch. An
// increment that meets an unlisted cell changes nothing, and takes the slow path under the
// stripe's lock. Sums that do not fit the word are kept in wide and count.
//
// A cell is listed and unlisted only under its stripe's lock.
//
// The fields that change are on the first cache line, and the name that a look-up compares is on
// the second. So one CPU can find the cell without taking the line from another CPU that adds to
// it.
type cell struct {
	word  atomic.Int64
	order uint64 // wire.Order of its counter
	wide  int64  // under the stripe's lock
	count int64  // under the stripe's lock
	lanes atomic.Pointer[lanes]
	fails atomic.Uint32 // failed attempts to change word, because of concurrent adds
	used  bool          // listed since the last sweep; under the stripe's lock

	_       [16]byte
	counter string
}

// newCell copies the counter: the caller's string may be part of a large one. A short name is
// stored right after its cell, where it is already in the CPU cache during a look-up.
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

// shortName is the length that fills a cell up to an allocation of two cache lines of 64 bytes.
const shortName = 48

const (
	listed    = 1 << 0
	spread    = 1 << 1
	countOne  = 1 << 2
	countMask = (1<<20 - 1) << 2
	sumShift  = 22
	maxNarrow = 1<<41 - 1
)

// add adds delta if it fits a word of a listed cell. If it returns false, nothing has changed.
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

// added returns the listed word w plus delta, if that fits.
func added(w, delta int64) (next int64, ok bool) {
	sum := w>>sumShift + delta
	if w&listed == 0 || w&countMask == countMask || sum > maxNarrow || sum < -maxNarrow {
		return w, false
	}
	return w + delta<<sumShift + countOne, true
}

// overflows reports whether a+b is beyond +-wire.MaxSum. Both a and b are within it.
func overflows(a, b int64) bool {
	if b > 0 {
		return a > wire.MaxSum-b
	}
	return a < -wire.MaxSum-b
}

// mayOverflow reports whether the wide sum can exceed its bounds, by delta and the largest sums
// that the words can have when it is added.
func (c *cell) mayOverflow(delta int64) bool {
	const words = (1 + 1<<laneBits) * maxNarrow
	return overflows(c.wide, max(delta, 0)+words) || overflows(c.wide, min(delta, 0)-words)
}

// An item is an entry to be flushed, with its wire.Order.
type item struct {
	order   uint64
	counter string
	delta   int64
}

// A table finds cells without a lock. It uses open addressing with linear probing. Slots are only
// filled, under the stripe's lock; a sweep makes a new table. Places come from a hash with a
// random seed for each Publisher, so that nobody can choose counters that collide.
type table struct {
	mask  uint64
	slots []slot
}

// A slot has a copy of its cell's place, so that a search does not touch the cells of other
// counters. With a million counters each touch is a cache miss.
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
