package publisher

import (
	"context"
	"hash/maphash"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/countmill/countmill/wire"
)

// cellOf returns the counter's present cell, or nil.
func (p *Publisher) cellOf(counter string) *cell {
	place := maphash.String(p.seed, counter)
	return p.stripes[stripeOf(place)].table.Load().find(place, counter)
}

// contend makes the counter have lanes in the next batch, if it has many increments in this one.
func (p *Publisher) contend(counter string) {
	if c := p.cellOf(counter); c != nil {
		c.fails.Store(1)
	}
}

// An Add that has read lanes may come after the flush that removed or emptied them.
func TestRemovedLanesTakeNothing(t *testing.T) {
	t.Parallel()
	gone, flushed := &cell{}, &cell{}
	gone.word.Store(listed | spread)
	flushed.word.Store(listed | spread)
	flushed.lanes.Store(new(lanes))
	for name, c := range map[string]*cell{"gone": gone, "flushed": flushed} {
		if c.add(1) {
			t.Errorf("%s: the increment was taken, want it to go the slow way", name)
		}
	}
}

// A counter whose increments contend has lanes from the next batch on. Every increment counts
// once, in whichever word it was added. A batch with few increments removes the lanes.
func TestBusyCountersHaveLanes(t *testing.T) {
	t.Parallel()
	bus := newBus(t)
	p := open(t, bus, Config{Linger: time.Hour})
	const counter, adders, each = "a", 16, 5000
	add := func() {
		handle, err := p.Counter(counter)
		must(t, err)
		var wg sync.WaitGroup
		for range adders {
			wg.Go(func() {
				for range each / 2 {
					must(t, p.Add(counter, 1))
					must(t, handle.Add(2))
				}
			})
		}
		wg.Wait()
	}
	add()
	c := p.cellOf(counter)
	if c.lanes.Load() != nil {
		t.Fatal("a new counter has lanes")
	}
	p.contend(counter)
	must(t, errOf(p.Flush(context.Background())))
	if c.lanes.Load() == nil {
		t.Fatal("no lanes although adds have met")
	}
	add()
	if w := c.word.Load(); w != listed|spread {
		t.Errorf("the word holds %d of %d increments", w&countMask>>2, adders*each)
	}
	used := 0
	for i := range c.lanes.Load() {
		w := c.lanes.Load()[i].word.Load()
		if w&listed == 0 {
			t.Errorf("lane %d is not listed", i)
		}
		if w&countMask != 0 {
			used++
		}
	}
	if used < 2 {
		t.Errorf("%d lanes used by %d goroutines", used, adders)
	}
	must(t, errOf(p.Flush(context.Background())))
	if c.lanes.Load() == nil {
		t.Fatal("lanes are gone after a batch with many increments")
	}
	for i := range c.lanes.Load() {
		// A goroutine may have read the cell's word before: its next increment would be lost.
		if w := c.lanes.Load()[i].word.Load(); w != 0 {
			t.Errorf("lane %d of an unlisted cell holds %d", i, w)
		}
	}
	must(t, p.Add(counter, 1))
	must(t, errOf(p.Flush(context.Background())))
	if c.lanes.Load() != nil {
		t.Error("lanes for a batch of one increment")
	}
	must(t, p.Add(counter, 1))
	closeNow(t, p)
	bus.wantTotals(map[string]int64{counter: 2*adders*each*3/2 + 2})
	if got, want := p.Stats().Increments, int64(2*adders*each+2); got != want {
		t.Errorf("%d increments, want %d", got, want)
	}
}

// No bound of the open batch includes the memory of lanes, so they are few.
func TestFewCellsHaveLanes(t *testing.T) {
	t.Parallel()
	p := open(t, newBus(t), Config{Linger: time.Hour})
	s := &p.stripes[0]
	s.mu.Lock()
	cells := make([]*cell, 2*mostSpread)
	for i := range cells {
		cells[i] = newCell("a")
		cells[i].count = manyAdds
		s.spreadLocked(cells[i])
		if cells[i].lanes.Load() != nil {
			t.Fatal("lanes for a cell whose adds never met")
		}
		cells[i].count--
		cells[i].fails.Store(1)
		s.spreadLocked(cells[i])
		if cells[i].lanes.Load() != nil {
			t.Fatal("lanes for a cell with few increments")
		}
		cells[i].count++
		cells[i].fails.Store(1)
		s.spreadLocked(cells[i])
	}
	n := 0
	for _, c := range cells {
		c.count = 0
		if c.lanes.Load() != nil {
			n++
		}
	}
	if n != mostSpread || s.spread != n {
		t.Errorf("%d cells have lanes and %d are counted, want %d", n, s.spread, mostSpread)
	}
	for _, c := range cells {
		s.spreadLocked(c)
	}
	if s.spread != 0 {
		t.Errorf("%d cells still counted", s.spread)
	}
	s.mu.Unlock()
	closeNow(t, p)
}

// A sweep removes lanes together with their cells.
func TestSweepCountsLanes(t *testing.T) {
	t.Parallel()
	p := open(t, newBus(t), Config{Linger: time.Hour})
	for range manyAdds {
		must(t, p.Add("a", 1))
	}
	p.contend("a")
	must(t, errOf(p.Flush(context.Background())))
	s := &p.stripes[stripeOf(maphash.String(p.seed, "a"))]
	if s.spread != 1 {
		t.Fatalf("%d cells with lanes, want 1", s.spread)
	}
	s.mu.Lock()
	s.sweepLocked() // used since the last one
	kept := s.spread
	s.sweepLocked()
	if kept != 1 || s.spread != 0 {
		t.Errorf("%d and %d cells with lanes after two sweeps, want 1 and 0", kept, s.spread)
	}
	s.mu.Unlock()
	must(t, p.Add("a", 1))
	closeNow(t, p)
}

// All words of a cell together can overflow its sum: an increment is refused before that.
func TestMayOverflowByAllWords(t *testing.T) {
	t.Parallel()
	const words = (1 + 1<<laneBits) * maxNarrow
	for _, c := range []struct {
		wide int64
		may  bool
	}{{wire.MaxSum - words, false}, {wire.MaxSum - words + 1, true}, {-wire.MaxSum + words, false}, {-wire.MaxSum + words - 1, true}} {
		if got := (&cell{wide: c.wide}).mayOverflow(0); got != c.may {
			t.Errorf("a sum of %d: may overflow is %t, want %t", c.wide, got, c.may)
		}
	}
}

// The fields that change and the compared name are on separate cache lines, and no memory is
// wasted.
func TestCellLines(t *testing.T) {
	t.Parallel()
	var both struct {
		cell
		name [shortName]byte
	}
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("pointers of 8 bytes only")
	}
	if at, all := unsafe.Offsetof(both.counter), unsafe.Sizeof(both); at != 64 || all != 128 {
		t.Errorf("the compared name begins at %d of %d bytes, want 64 of 128", at, all)
	}
	if n := unsafe.Sizeof(lanes{}); n != 64<<laneBits {
		t.Errorf("lanes take %d bytes", n)
	}
}
