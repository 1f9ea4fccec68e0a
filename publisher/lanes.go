package publisher

import (
	"sync/atomic"
	"unsafe"
)

// lanes are further words of a cell to which many goroutines add at once. Each is on a cache line
// of its own, so that increments of different goroutines do not contend (as in Doug Lea's
// LongAdder). They are listed as the cell is, and the cell's own word is not used meanwhile.
type lanes [1 << laneBits]struct {
	word atomic.Int64
	_    [56]byte
}

const (
	laneBits = 4

	// A cell gets lanes when a batch has manyAdds increments of it and some of them contended. It
	// loses them when a batch has less than a quarter of that.
	manyAdds = 4096

	// mostSpread is the most cells of a stripe that have lanes, of 1 KiB each.
	mostSpread = 8
)

// addToLane adds to the goroutine's lane. Lanes that were taken from the cell stay unlisted for
// ever, so it returns false for them.
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

// lane picks a lane by the address of the goroutine's stack, in steps of 2 KiB, the smallest
// stack. It mixes the address as in Chris Wellons, "Prospecting for Hash Functions". Two
// goroutines in one lane are slower, but correct.
func lane() int {
	var here byte
	h := uint64(uintptr(unsafe.Pointer(&here)) >> 11)
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return int(h >> (64 - laneBits))
}

// spreadLocked gives lanes to a busy cell, and takes them from a cell that is not busy any more.
// The cell must be unlisted. c.count is its number of increments in the batch.
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
