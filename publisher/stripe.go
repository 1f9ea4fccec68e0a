package publisher

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/wire"
)

const (
	stripeBits  = 6
	stripeCount = 1 << stripeBits

	// drainBits is the number of leading bits of the order by which a drain is divided before
	// sorting. A request of 50,000 increments then has some 50 of them in each slice.
	drainBits = 10

	// minCells is the least number of cells that a stripe remembers.
	minCells = 64

	// sweepEvery is the shortest interval at which unused counters are forgotten.
	sweepEvery = time.Minute

	// entryCost is the approximate memory of an entry without its name, in bytes: a cell, its
	// slots and its place in a list.
	entryCost = 160

	// requestCost is the approximate memory of a waiting call, without its increments and its
	// goroutine. It includes the head of a request with a key.
	requestCost = 384
)

func cost(counter string) int64 { return int64(len(counter) + entryCost) }

// A size is a number of counters and their approximate memory in bytes.
type size struct {
	counters int
	bytes    int64
}

func (a size) plus(b size) size { return size{a.counters + b.counters, a.bytes + b.bytes} }

func (a size) within(b size) bool { return a.counters < b.counters && a.bytes < b.bytes }

// A stripe holds the counters whose places begin with its number. Increments of listed cells do
// not lock it.
type stripe struct {
	table atomic.Pointer[table]
	since atomic.Int64 // time of the oldest open increment, Unix microseconds; 0 if there is none
	open  *gauge
	env   *clock.Env
	most  size  // bound of the remembered cells, unless more are listed
	many  int64 // increments in a batch from which a cell gets lanes

	mu     sync.Mutex
	closed bool
	listed []*cell
	spills []item // sums that exceeded wide
	spread int    // number of cells with lanes
	cells  size
	room   size // bound of cells until the next sweep
	swept  time.Time

	_ [64]byte // keeps the next stripe's lock on another cache line
}

func stripeOf(place uint64) uint64 { return place >> (64 - stripeBits) }

// addSlow adds an increment that does not fit the word of a cell: the first one in the open
// batch, a new counter, a large delta, or a full word. The counter and the delta are valid. first
// is true if the stripe was empty.
func (s *stripe) addSlow(place uint64, counter string, delta int64) (c *cell, first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, countmill.ErrClosed
	}
	c = s.table.Load().find(place, counter)
	switch {
	case c == nil || c.word.Load()&listed == 0:
		var now time.Time
		if len(s.listed) == 0 {
			if now = s.env.Now(); clock.Check(now) != nil {
				return nil, false, clock.Check(now)
			}
		}
		if !s.open.reserve(1, cost(counter)) {
			return nil, false, countmill.ErrOverloaded
		}
		if c == nil {
			c = s.insertLocked(place, counter)
		}
		first = s.listLocked(c, now)
	case c.mayOverflow(delta) && !s.open.room(cost(counter)):
		return nil, false, countmill.ErrOverloaded
	}
	s.widenLocked(c, delta, 1)
	return c, first, nil
}

// listLocked puts a cell into the open batch. now is the time of the increment if it is the first
// one. Nobody else changes the cell's words before.
func (s *stripe) listLocked(c *cell, now time.Time) (first bool) {
	if first = len(s.listed) == 0; first {
		s.since.Store(now.UnixMicro())
	}
	s.listed = append(s.listed, c)
	c.used = true
	s.drainLocked(c, listed)
	return first
}

// widenLocked moves the sums in the words into the wide sum, and adds delta.
func (s *stripe) widenLocked(c *cell, delta, count int64) {
	s.drainLocked(c, listed)
	s.addWideLocked(c, delta, count)
}

// drainLocked moves the sums in the words into the wide sum. If as is listed, later increments
// are in the open batch. If as is 0, they take the slow path.
func (s *stripe) drainLocked(c *cell, as int64) {
	all, own := c.lanes.Load(), as
	if all != nil && as == listed {
		own |= spread
	}
	s.addWordLocked(c, c.word.Swap(own))
	if all == nil {
		return
	}
	for i := range all {
		s.addWordLocked(c, all[i].word.Swap(as))
	}
}

func (s *stripe) addWordLocked(c *cell, w int64) {
	s.addWideLocked(c, w>>sumShift, w&countMask>>2)
}

func (s *stripe) addWideLocked(c *cell, delta, count int64) {
	c.count += count
	if overflows(c.wide, delta) {
		s.open.add(1, cost(c.counter))
		s.spills = append(s.spills, item{c.order, c.counter, c.wide})
		c.wide = 0
	}
	c.wide += delta
}

func (s *stripe) insertLocked(place uint64, counter string) *cell {
	if !s.cells.within(s.room) {
		s.sweepLocked()
	}
	c := newCell(counter)
	s.table.Load().insert(place, c)
	s.cells.counters++
	s.cells.bytes += cost(counter)
	return c
}

// sweepLocked makes a new table with twice the room of the cells in use. It leaves out unlisted
// cells that were not listed since the last sweep, or all unlisted cells if there are too many. A
// handle with a removed cell finds it unlisted, and gets the present cell from addSlow.
func (s *stripe) sweepLocked() {
	crowded := !s.cells.within(s.most)
	var kept []*slot
	var cells size
	if old := s.table.Load(); old != nil {
		for i := range old.slots {
			c := old.slots[i].cell.Load()
			if c != nil && (c.word.Load()&listed != 0 || c.used && !crowded) {
				c.used = false
				kept = append(kept, &old.slots[i])
				cells.bytes += cost(c.counter)
			} else if c != nil && c.lanes.Load() != nil {
				s.spread--
			}
		}
	}
	cells.counters = len(kept)
	s.cells, s.room, s.swept = cells, s.roomFor(cells), time.Now()
	t := newTable(s.room.counters)
	for _, at := range kept {
		t.insert(at.place, at.cell.Load())
	}
	s.table.Store(t)
}

// roomFor is twice the cells in use, but not beyond most. If more than most are listed, it is a
// quarter more, so that sweeps stay rare.
func (s *stripe) roomFor(cells size) size {
	most := s.most
	if cells.counters > 0 {
		most.counters = min(most.counters, int(most.bytes/(cells.bytes/int64(cells.counters))))
	}
	if cells.counters > most.counters {
		most.counters = cells.counters * 5 / 4
	}
	if cells.bytes > most.bytes {
		most.bytes = cells.bytes * 5 / 4
	}
	return size{max(minCells, cells.counters+1, min(2*cells.counters, most.counters)), max(minCells*cost(""), most.bytes)}
}

// drain takes everything out of the stripe. If last is true, the stripe refuses later
// increments.
func (s *stripe) drain(h *drain, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = s.closed || last
	if len(s.listed) == 0 {
		return
	}
	h.oldest = earlier(h.oldest, time.UnixMicro(s.since.Load()))
	for _, c := range s.listed {
		s.drainLocked(c, 0)
		h.add(item{c.order, c.counter, c.wide})
		h.increments += c.count
		s.spreadLocked(c)
		c.wide, c.count = 0, 0
		h.held = h.held.plus(size{1, cost(c.counter)})
	}
	// Each spilled sum took room of its own, in addition to its counter's.
	for _, it := range s.spills {
		h.add(it)
		h.held = h.held.plus(size{1, cost(it.counter)})
	}
	s.listed, s.spills = reuse(s.listed), nil
	s.since.Store(0)
	if s.cells.counters > minCells && time.Since(s.swept) > sweepEvery {
		s.sweepLocked()
	}
}

// A gauge counts and bounds the open batch.
type gauge struct {
	entries, bytes       atomic.Int64
	maxEntries, maxBytes int64
}

// reserve adds to the open batch unless that would exceed its bounds.
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

func (g *gauge) release(held size) { g.add(-int64(held.counters), -held.bytes) }

// room reports whether there is room for one more entry of that many bytes.
func (g *gauge) room(bytes int64) bool {
	return g.entries.Load() < g.maxEntries && g.bytes.Load()+bytes <= g.maxBytes
}

// filled reports whether three quarters of the open batch are full, which ends the linger. The
// last quarter is for increments that arrive before the batch is flushed. A higher share would let
// more increments share an entry.
func (g *gauge) filled() bool {
	return 4*g.entries.Load() > 3*g.maxEntries || 4*g.bytes.Load() > 3*g.maxBytes
}

// A drain has the increments of one minute that left the open batch.
type drain struct {
	minute     wire.Minute
	held       size     // still counted in the open batch
	items      [][]item // one, or 1 << drainBits that are divided by the first bits of their order
	oldest     time.Time
	increments int64
	entries    []wire.Entry // memory of the first layer
}

// newDrain returns a small drain: during an outage each minute has one.
func newDrain() *drain { return &drain{items: make([][]item, 1)} }

// reset empties the drain, and keeps its memory for the next one unless most of it was not
// used.
func (h *drain) reset() {
	for i, items := range h.items {
		h.items[i] = reuse(items)
	}
	h.entries = reuse(h.entries)
	h.minute, h.held, h.oldest, h.increments = 0, size{}, time.Time{}, 0
}

// reuse returns the slice without elements, or nil if less than a quarter of it was used.
func reuse[T any](s []T) []T {
	if len(s) < cap(s)/4 {
		return nil
	}
	clear(s) // drops references
	return s[:0]
}

func (h *drain) add(it item) {
	if it.delta != 0 {
		at := it.order >> (64 - drainBits) * uint64(len(h.items)) >> drainBits
		h.items[at] = append(h.items[at], it)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
