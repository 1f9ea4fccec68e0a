package publisher

import (
	"sync/atomic"

	"github.com/countmill/countmill/wire"
)

// A cell is the sum of one counter in the open batch.
//
// Its word holds, from the top, the sum of small deltas (42 bits), how many there were
// (21 bits), and whether the cell is listed in the open batch. All three change in one
// step, so an increment that was added to a listed cell is certainly in the open
// batch, and one that meets an unlisted cell has changed nothing and goes the slow way,
// under the stripe's lock. What does not fit the word gathers in wide and count.
//
// A cell is listed and unlisted under its stripe's lock only.
type cell struct {
	word    atomic.Int64
	hash    uint64
	counter string
	wide    int64 // under the stripe's lock
	count   int64 // under the stripe's lock
	used    bool  // listed since the last sweep; under the stripe's lock
}

const (
	listed    = 1
	countOne  = 1 << 1
	countMask = (1<<21 - 1) << 1
	sumShift  = 22
	maxNarrow = 1<<41 - 1
)

// add adds delta if that takes nothing but the word. False: nothing has changed.
func (c *cell) add(delta int64) bool {
	if delta == 0 || delta > maxNarrow || delta < -maxNarrow {
		return false
	}
	for {
		w := c.word.Load()
		sum := w>>sumShift + delta
		if w&listed == 0 || w&countMask == countMask || sum > maxNarrow || sum < -maxNarrow {
			return false
		}
		if c.word.CompareAndSwap(w, w+delta<<sumShift+countOne) {
			return true
		}
	}
}

// overflows reports whether a+b leaves +-wire.MaxSum; both are within.
func overflows(a, b int64) bool {
	if b > 0 {
		return a > wire.MaxSum-b
	}
	return a < -wire.MaxSum-b
}

// mayOverflow reports whether the wide sum can leave its bounds by delta and whatever the
// word holds by the time it is added.
func (c *cell) mayOverflow(delta int64) bool {
	return overflows(c.wide, max(delta, 0)+maxNarrow) || overflows(c.wide, min(delta, 0)-maxNarrow)
}

// An item is an entry on its way into a seal, with the hash that orders it.
type item struct {
	hash    uint64
	counter string
	delta   int64
}

// A table finds cells without a lock. It is open addressing with linear probing; slots
// are only ever filled, under the stripe's lock, and a sweep makes a new table.
type table struct {
	mask  uint64
	slots []atomic.Pointer[cell]
}

// newTable has room for n cells at half load.
func newTable(n int) *table {
	size := 16
	for size < 2*n {
		size *= 2
	}
	return &table{mask: uint64(size - 1), slots: make([]atomic.Pointer[cell], size)}
}

func (t *table) find(hash uint64, counter string) *cell {
	if t == nil {
		return nil
	}
	for i := hash; ; i++ {
		c := t.slots[i&t.mask].Load()
		if c == nil || c.hash == hash && c.counter == counter {
			return c
		}
	}
}

func (t *table) insert(c *cell) {
	for i := c.hash; ; i++ {
		if slot := &t.slots[i&t.mask]; slot.Load() == nil {
			slot.Store(c)
			return
		}
	}
}
