package fakestore

import (
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Counts are what was done so far. A call whose answer was lost counts when it was
// applied.
type Counts struct {
	Folds, Entities, Markers, Adds int
	LargestFold                    int // in entities
	Collisions                     int // folds that got ErrMarkerExists
	OverLimit, Mistakes            int // calls refused for the caller's fault
	Raises, Raised                 int // calls and records
	MarkersRead, RecordsRead       int
	Lookups, KeysRead, Lists       int
	Buried, Discarded, Announced   int
	Resets                         int
}

// Counts returns what was done so far.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Calls is how often op was called, whatever came of it.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// FoldCalls is how often Fold was called, whatever came of it.
func (s *Store) FoldCalls() int { return s.Calls(fold) }

// Totals sums the shards of every counter.
func (s *Store) Totals() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	totals := make(map[string]int64)
	for key, h := range s.shards {
		sum, _ := h.newest()
		totals[key.counter] += sum
	}
	return totals
}

// Total sums the shards of one counter.
func (s *Store) Total(counter string) int64 { return s.Totals()[counter] }

// TotalAt sums the shards of one counter as they were at a moment, whatever its record
// says. It needs Options.History.
func (s *Store) TotalAt(counter string, at time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var total int64
	for key, h := range s.shards {
		if key.counter == counter {
			sum, _ := h.at(at)
			total += sum
		}
	}
	return total
}

// ServedAt is what a reader has to show of a counter as it was at a moment: all that its
// shards held, whatever its record says of their number, less its baseline. It needs
// Options.History.
func (s *Store) ServedAt(counter string, at time.Time) (total int64, exists bool) {
	sum := s.TotalAt(counter, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _ := s.records[counter].at(at)
	total = sum - r.Baseline
	return total, r.exists && (r.DeletedAt.IsZero() || total != 0)
}

// Left is the sum of a counter's shards less its baseline.
func (s *Store) Left(counter string) int64 {
	s.mu.Lock()
	r, _ := s.records[counter].newest()
	s.mu.Unlock()
	return s.Total(counter) - r.Baseline
}

// Recorded reports whether the counter has a record, also where it was deleted.
func (s *Store) Recorded(counter string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _ := s.records[counter].newest()
	return r.shards > 0
}

// Now is the store's time.
func (s *Store) Now() time.Time { return s.opts.now() }

// Ahead makes a counter's last reset one whose clock was ahead, and reports whether there was
// one.
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

// Marker returns the marker of a part, if there is one.
func (s *Store) Marker(id wire.PartID) (store.Marker, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.markers[id]
	return m, ok
}

// Letters returns all dead letters in the order of their keys.
func (s *Store) Letters() []store.DeadLetter {
	s.mu.Lock()
	defer s.mu.Unlock()
	var letters []store.DeadLetter
	for _, key := range slices.Sorted(maps.Keys(s.dead)) {
		letters = append(letters, s.dead[key])
	}
	return letters
}

// OpenViews is how many views have been read from and not closed.
func (s *Store) OpenViews() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.views)
}
