package fakestore

import (
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Counts counts the applied calls so far, including those whose answer was lost.
type Counts struct {
	Folds, Entities, Markers, Adds int
	LargestFold                    int // in entities
	Collisions                     int // folds that got ErrMarkerExists
	OverLimit, Mistakes            int // calls refused because of the caller
	Raises, Raised                 int // calls and records
	MarkersRead, RecordsRead       int
	Lookups, KeysRead, Lists       int
	Buried, Discarded, Announced   int
	Resets                         int
	Moves, MoveEntities            int // of shards into the archive, and what they wrote
	Swept                          int // buckets of the archive
}

// Counts returns the counts so far.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Calls returns how often op was called, with any result.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// FoldCalls returns how often Fold was called, with any result.
func (s *Store) FoldCalls() int { return s.Calls(fold) }

// Totals sums the shards of every counter. Like the other sums here it wraps.
func (s *Store) Totals() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	totals := make(map[string]int64)
	for key, h := range s.shards {
		sum, _ := h.newest()
		totals[key.counter] += int64(sum.Lo)
	}
	return totals
}

// Total sums the shards of one counter.
func (s *Store) Total(counter string) int64 { return s.Totals()[counter] }

// TotalAt sums all shards of one counter at a moment, including those that its record does not name. It
// needs Options.History.
func (s *Store) TotalAt(counter string, at time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var total int64
	for key, h := range s.shards {
		if key.counter == counter {
			sum, _ := h.at(at)
			total += int64(sum.Lo)
		}
	}
	return total
}

// ServedAt returns the total that a reader should show of a counter at a moment: the sum of all its
// shards, including those that its record does not name, less its baseline. It needs Options.History.
func (s *Store) ServedAt(counter string, at time.Time) (total int64, exists bool) {
	sum := s.TotalAt(counter, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _ := s.records[counter].at(at)
	total = sum + int64(r.remainder.Lo) - int64(r.Baseline.Lo)
	return total, r.exists && (r.DeletedAt.IsZero() || total != 0)
}

// Left returns for each counter the sum of its shards less its baseline.
func (s *Store) Left() map[string]int64 {
	left := s.Totals()
	s.mu.Lock()
	defer s.mu.Unlock()
	for counter, h := range s.records {
		r, _ := h.newest()
		left[counter] -= int64(r.Baseline.Lo)
	}
	return left
}

// Recorded reports whether the counter has a record, even if the counter is deleted.
func (s *Store) Recorded(counter string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _ := s.records[counter].newest()
	return r.shards > 0
}

// Now is the store's time.
func (s *Store) Now() time.Time { return s.opts.now() }

// Moment is a moment of the store: every view of it or of a later one shows all folds so far.
func (s *Store) Moment() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readTimeLocked()
}

// Ahead changes a counter's last reset to one whose clock was ahead, and reports whether there was a
// reset.
func (s *Store) Ahead(counter string, by time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _ := s.records[counter].newest()
	if r.ResetAt.IsZero() {
		return false
	}
	r.ResetAt = r.ResetAt.Add(by)
	s.records[counter] = s.records[counter].set(s.commitTimeLocked(), r, s.oldestLocked())
	return true
}

// Marker returns the marker of a part, if it exists.
func (s *Store) Marker(id wire.PartID) (store.Marker, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.markers[id]
	return m, ok
}

// DeadLetters returns all dead letters in the order of their keys.
func (s *Store) DeadLetters() []store.DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	var letters []store.DeadLetter
	for _, key := range slices.Sorted(maps.Keys(s.dead)) {
		letters = append(letters, s.dead[key])
	}
	return letters
}

// OpenViews returns the number of views that have been read from and not closed.
func (s *Store) OpenViews() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.views)
}
