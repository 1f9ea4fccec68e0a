package httpapi

import (
	"fmt"
	"sync"

	"github.com/countmill/countmill"
)

// pooled is the capacity that buffers have in the pool. A budget does not count it.
const pooled = 4 << 10

// A budget bounds the bytes that requests hold while they are read and answered. Callers share
// it.
type budget struct {
	most int

	mu      sync.Mutex
	pending shares // bytes of bodies beyond pooled, until their requests are answered
}

// newBudget returns a budget of most bytes, or of as many as one body of maxBody needs.
func newBudget(most, maxBody int) *budget {
	return &budget{most: max(most, (maxBody+1)/keen*(keen+1)+keen)}
}

// A hold is the bytes that one request holds.
type hold struct {
	caller string
	bytes  int
}

// keen bounds a caller's pending bytes: at most keen times the bytes that are free. One caller
// alone gets keen/(keen+1) of a budget, two callers keen/(2*keen+1) each. However many there
// are, some bytes stay free for a caller with few.
const keen = 8

// mostLocked is the most pending bytes of a caller once n more are pending.
func (b *budget) mostLocked(n int) int { return keen * (b.most - b.pending.used - n) }

// fits refuses a body that reserve would refuse after a part of it. It reserves nothing: only
// bytes that have arrived are reserved, and a client may announce more than it sends.
func (b *budget) fits(caller string, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending.by[caller]+n > b.mostLocked(n) {
		return b.overfull()
	}
	return nil
}

// reserve counts n bytes more of a request as pending.
func (b *budget) reserve(h *hold, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.pending.take(h.caller, n, b.mostLocked(n)) {
		return b.overfull()
	}
	h.bytes += n
	return nil
}

// release ends what reserve began.
func (b *budget) release(h *hold) {
	if h.bytes == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending.give(h.caller, h.bytes)
}

func (b *budget) overfull() error {
	return fmt.Errorf("%w: bodies that are being read come to %d bytes, with this one to more than this caller's share", countmill.ErrOverloaded, b.most)
}

// shares is how much of a bounded thing each caller uses. It forgets callers that use nothing.
// Its methods need its owner's lock.
type shares struct {
	used int
	by   map[string]int // never 0
}

// take adds n to the caller's share, unless the share would exceed most.
func (s *shares) take(caller string, n, most int) bool {
	if s.by[caller]+n > most {
		return false
	}
	if s.by == nil {
		s.by = make(map[string]int)
	}
	s.used += n
	s.by[caller] += n
	return true
}

// give takes n off the caller's share.
func (s *shares) give(caller string, n int) {
	s.used -= n
	if s.by[caller] -= n; s.by[caller] == 0 {
		delete(s.by, caller)
	}
}
