package pebble

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble names its writers of tables so.
const (
	flushing   vfs.DiskWriteCategory = "pebble-memtable-flush"
	compacting vfs.DiskWriteCategory = "pebble-compaction"
)

// The wait before the first table after a failed one, and the longest wait. Guesses: a flush that fails takes up to a
// second of a CPU, and folds begin again so late after the disk has room.
const (
	shortPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// pauses keep Pebble from writing tables again and again while the disk refuses them: it tries again at once, for
// ever.
type pauses struct {
	first time.Duration   // shortPause, but in tests
	end   <-chan struct{} // ends all waits

	mu sync.Mutex
	of map[vfs.DiskWriteCategory]pause
}

// A pause is that of a writer whose last table failed.
type pause struct {
	next time.Duration
	due  bool // false once a table has waited: work of several tables waits once
}

func newPauses(first time.Duration, end <-chan struct{}) *pauses {
	return &pauses{first: first, end: end, of: make(map[vfs.DiskWriteCategory]pause)}
}

// wait waits before a table if the last one of the writer failed.
func (p *pauses) wait(writer vfs.DiskWriteCategory) {
	next := p.take(writer)
	if next == 0 {
		return
	}
	select {
	case <-time.After(next):
	case <-p.end:
	}
}

// take returns how long the next table waits, once.
func (p *pauses) take(writer vfs.DiskWriteCategory) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of[writer]
	if !x.due {
		return 0
	}
	p.of[writer] = pause{next: x.next}
	return x.next
}

// ended says how the work of a writer ended.
func (p *pauses) ended(writer vfs.DiskWriteCategory, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.of, writer)
		return
	}
	next := p.first
	if before := p.of[writer].next; before > 0 {
		next = max(before, min(2*before, longPause)) // tests begin with a longer one
	}
	p.of[writer] = pause{next, true}
}
