package publisher

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/env"
)

const (
	stripeBits  = 6
	stripeCount = 1 << stripeBits

	// minCells is what a stripe remembers in any case.
	minCells = 64

	// sweepEvery is how often counters at rest are forgotten, at most.
	sweepEvery = time.Minute

	// entryCost is roughly what an entry takes beside its names: a cell, its slots and
	// its place in a list.
	entryCost = 128
)

// A stripe holds the counters whose hashes begin with its number, so that stripes are
// in hash order. Increments of listed cells do not take its lock.
type stripe struct {
	table atomic.Pointer[table]
	since atomic.Int64 // when the oldest increment came, Unix microseconds; 0: none open
	open  *gauge
	env   *env.Env
	most  int // cells, unless more are listed

	mu     sync.Mutex
	closed bool
	listed []*cell
	spills []item // sums that had no room left
	cells  int
	room   int // cells until the next sweep
	swept  time.Time

	_ [64]byte // the next stripe's lock is on another cache line
}

func stripeOf(hash uint64) uint64 { return hash >> (64 - stripeBits) }

// addSlow adds what the word of a cell could not take: the first increment in the open
// batch, a new counter, a large delta, a full word. The counter and the delta are
// valid. first is true if the stripe had nothing open.
func (s *stripe) addSlow(hash uint64, counter string, delta int64) (c *cell, first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, countmill.ErrClosed
	}
	c = s.table.Load().find(hash, counter)
	switch {
	case c == nil || c.word.Load()&listed == 0:
		if !s.open.reserve(1, int64(len(counter)+entryCost)) {
			return nil, false, countmill.ErrOverloaded
		}
		if c == nil {
			c = s.insertLocked(hash, counter)
		}
		first = s.listLocked(c)
	case c.mayOverflow(delta) && !s.open.room(int64(len(counter)+entryCost)):
		return nil, false, countmill.ErrOverloaded
	}
	s.widenLocked(c, delta, 1)
	return c, first, nil
}

// listLocked puts a cell into the open batch. Nobody else writes to its word before.
func (s *stripe) listLocked(c *cell) (first bool) {
	if first = len(s.listed) == 0; first {
		s.since.Store(s.env.Now().UnixMicro())
	}
	s.listed = append(s.listed, c)
	c.used = true
	c.word.Store(listed)
	return first
}

// widenLocked moves what the word holds into the wide sum, and delta with it.
func (s *stripe) widenLocked(c *cell, delta, count int64) {
	w := c.word.Swap(listed)
	s.addWideLocked(c, w>>sumShift, w&countMask>>1)
	s.addWideLocked(c, delta, count)
}

func (s *stripe) addWideLocked(c *cell, delta, count int64) {
	c.count += count
	if overflows(c.wide, delta) {
		s.open.add(1, int64(len(c.counter)+entryCost))
		s.spills = append(s.spills, item{c.hash, c.counter, c.wide})
		c.wide = 0
	}
	c.wide += delta
}

func (s *stripe) insertLocked(hash uint64, counter string) *cell {
	if s.cells >= s.room {
		s.sweepLocked()
	}
	// A copy: the caller's string may be a piece of something large.
	c := &cell{hash: hash, counter: strings.Clone(counter)}
	s.table.Load().insert(c)
	s.cells++
	return c
}

// sweepLocked makes a new table with twice the room that the cells in use need. Left
// out are unlisted cells that were not listed since the last sweep, and all unlisted
// ones when there are too many. Whoever still holds one of those finds it unlisted,
// and comes here for the one that is in the table.
func (s *stripe) sweepLocked() {
	crowded := s.cells >= s.most
	var kept []*cell
	if old := s.table.Load(); old != nil {
		for i := range old.slots {
			c := old.slots[i].Load()
			if c != nil && (c.word.Load()&listed != 0 || c.used && !crowded) {
				c.used = false
				kept = append(kept, c)
			}
		}
	}
	// Twice the cells in use, but not beyond most; a quarter more where more than most
	// are listed, so that sweeps stay rare.
	room := min(2*len(kept), max(s.most, len(kept)*5/4))
	s.cells, s.room, s.swept = len(kept), max(minCells, room, len(kept)+1), time.Now()
	t := newTable(s.room)
	for _, c := range kept {
		t.insert(c)
	}
	s.table.Store(t)
}

// harvest takes everything out of the stripe; last refuses what comes later.
func (s *stripe) harvest(h *harvest, number int, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || last
	if len(s.listed) == 0 {
		return
	}
	h.oldest = earlier(h.oldest, time.UnixMicro(s.since.Load()))
	var entries, bytes int64
	for _, c := range s.listed {
		w := c.word.Swap(0)
		s.addWideLocked(c, w>>sumShift, w&countMask>>1)
		h.add(number, item{c.hash, c.counter, c.wide})
		h.increments += c.count
		c.wide, c.count = 0, 0
		entries, bytes = entries+1, bytes+int64(len(c.counter)+entryCost)
	}
	for _, it := range s.spills {
		h.add(number, it)
		entries, bytes = entries+1, bytes+int64(len(it.counter)+entryCost)
	}
	s.listed, s.spills = nil, nil
	s.since.Store(0)
	s.open.add(-entries, -bytes)
	if s.cells > minCells && time.Since(s.swept) > sweepEvery {
		s.sweepLocked()
	}
}

// A gauge bounds what is open.
type gauge struct {
	entries, bytes       atomic.Int64
	maxEntries, maxBytes int64
}

// reserve adds to the open batch unless that would leave its bounds.
func (g *gauge) reserve(entries, bytes int64) bool {
	g.add(entries, bytes)
	if g.entries.Load() > g.maxEntries || g.bytes.Load() > g.maxBytes {
		g.add(-entries, -bytes)
		return false
	}
	return true
}

func (g *gauge) add(entries, bytes int64) {
	g.entries.Add(entries)
	g.bytes.Add(bytes)
}

// room reports whether one more entry of that many bytes has room.
func (g *gauge) room(bytes int64) bool {
	return g.entries.Load() < g.maxEntries && g.bytes.Load()+bytes <= g.maxBytes
}

// half reports whether the open batch is half full, which ends the linger.
func (g *gauge) half() bool {
	return g.entries.Load() > g.maxEntries/2 || g.bytes.Load() > g.maxBytes/2
}

// A harvest is what was taken out of the open batch, by stripe, which is hash order.
type harvest struct {
	items      [stripeCount][]item
	oldest     time.Time
	increments int64
}

func (h *harvest) add(stripe int, it item) {
	if it.delta != 0 {
		h.items[stripe] = append(h.items[stripe], it)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
