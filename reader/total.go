package reader

import (
	"fmt"
	"time"

	"github.com/countmill/countmill"
)

// The sources of a total.
const (
	SourceCache = "cache"
	SourceStore = "store"
)

// A Total is the sum of a counter's shards at one moment, minus their sum at its last reset.
type Total struct {
	Counter string
	Total   int64
	// AsOf is that moment, by the store's clock: Total includes every fold that was committed by
	// then.
	AsOf time.Time
	// Source is SourceCache or SourceStore.
	Source string
	// Shards is the number of shards in the counter's record.
	Shards int
	// Exists is false for a counter that was never incremented, or not since it was deleted.
	// Total and Shards are then 0.
	Exists bool
	// Overflow means that the total does not fit 64 bits. Total is then 0, and an *OverflowError came with it.
	Overflow bool
	// Checked is, for a group, when its index was last compared with the shards of its counters: the total
	// has everything that was folded before the index. It is zero for other counters.
	Checked time.Time
}

// An OverflowError names a counter whose total does not fit 64 bits, the first one of a call. It matches
// countmill.ErrOverflow.
type OverflowError struct{ Counter string }

func (e *OverflowError) Error() string {
	return fmt.Sprintf("%v: counter %q", countmill.ErrOverflow, e.Counter)
}

// Is makes errors.Is(err, countmill.ErrOverflow) true.
func (e *OverflowError) Is(target error) bool { return target == countmill.ErrOverflow }

// overflowOf returns an *OverflowError for the first total that has Overflow; nil if none has.
func overflowOf(totals []Total) error {
	for i := range totals {
		if totals[i].Overflow {
			return &OverflowError{Counter: totals[i].Counter}
		}
	}
	return nil
}
