package store

import (
	"context"
	"time"

	"github.com/countmill/countmill/store/int128"
)

// Records keeps the record of each counter: its number of shards. Concurrent calls are
// allowed.
type Records interface {
	// Shards returns the number of shards in each counter's record, and 0 for a counter
	// whose record is missing or deleted.
	Shards(ctx context.Context, counters []string) ([]int, error)

	// Grow makes sure that each counter has a record with at least the given number of
	// shards. It never lowers a number, and it ends the deletion of a deleted counter, as
	// Commit.Growths do. It may be repeated.
	Grow(ctx context.Context, growths []Growth) error
}

// A Growth asks for at least Shards shards.
type Growth struct {
	Counter string
	Shards  int
}

// Counters changes the records of counters one at a time. Concurrent calls are allowed.
type Counters interface {
	// ResetCounter applies r to the counter's record and inserts its marker, in one
	// transaction. If the marker exists already, it changes nothing and returns the result
	// in the marker. Folds neither wait nor abort: they do not touch the record.
	//
	// It may be repeated with the same ID; repeat it if the outcome is not known. An error
	// that matches ErrChanged or countmill.ErrUnavailable means that nothing was changed.
	ResetCounter(ctx context.Context, r ResetRequest) (ResetResult, error)

	// SweepCounters removes counters that were deleted at least after ago, by the store's
	// clock, and whose shards sum to their baselines. It removes record and shards together,
	// in a transaction that looks again, and returns how many counters it removed. A store
	// may need several calls.
	//
	// It leaves the counters of indexes, also of an index being deleted, and of the journal
	// (Rules.Kept). Groups keep the count of such a counter, and a later reading of its range must find it
	// again. A recount must find the increments of its records.
	//
	// Records.Shards answers 0 for a deleted counter, and the aggregator's growth then ends
	// the deletion. So only an aggregator that asked before the delete can fold into a
	// counter that is being removed.
	SweepCounters(ctx context.Context, after time.Duration) (removed int, err error)
}

// A Sum is the state of a counter's record and shards at one moment.
type Sum struct {
	// Exists is true if there is a record, deleted or not.
	Exists bool
	// Sum is the sum of the shards, before the baseline is subtracted.
	Sum int128.Int
	ResetState
	// At is the moment, by the store's clock.
	At time.Time
}
