package publisher

import (
	"sync/atomic"
	"unsafe"
)

// lanes are further words of a cell to which many add at once, each on a line of memory of
// its own: increments of different goroutines do not meet there. They are listed as the cell
// is, and the cell's own word is left alone meanwhile.
type lanes [1 << laneBits]struct {
	word atomic.Int64
	_    [56]byte
}

const (
	laneBits = 4

	// A cell gets lanes when a batch has so many increments of it, some of which met. It
	// loses them when one has less than a quarter of that.
	manyAdds = 4096

	// mostSpread is how many cells of a stripe have lanes at once, of 1 KiB each.
	mostSpread = 8
)

// addToLane adds to the lane of the goroutine. Lanes that are not the cell's any more are
// unlisted for good.
func (c *cell) addToLane(delta int64) bool {
	all := c.lanes.Load()
	if all == nil {
		return false
	}
	word := &all[lane()].word
	for {
		w := word.Load()
		next, ok := added(w, delta)
		if !ok {
			return false
		}
		if word.CompareAndSwap(w, next) {
			return true
		}
	}
}

// lane tells goroutines apart by where their stacks are, in steps of 2 KiB, the least that a stack
// takes, mixed as in Chris Wellons, "Prospecting for Hash Functions". Two that are given the same
// lane are slower, and nothing else.
func lane() int {
	var here byte
	h := uint64(uintptr(unsafe.Pointer(&here)) >> 11)
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return int(h >> (64 - laneBits))
}

// spreadLocked gives lanes to a cell that many add to at once, and takes them from one that few
// add to any more. The cell is unlisted, and count is what it had in the batch.
func (s *stripe) spreadLocked(c *cell) {
	met := c.fails.Swap(0) > 0
	switch all := c.lanes.Load(); {
	case all == nil && met && c.count >= s.many && s.spread < mostSpread:
		c.lanes.Store(new(lanes))
		s.spread++
	case all != nil && c.count < s.many/4:
		c.lanes.Store(nil)
		s.spread--
	}
}
