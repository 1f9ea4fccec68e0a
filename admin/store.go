package admin

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill/store"
)

// ErrChanged is a store's answer to a reset whose look-up is too old, or was of a counter
// that has been swept since. Nothing was done: look again.
var ErrChanged = errors.New("the counter has changed since it was looked up")

// A Sum is what a counter's record and shards hold at one moment.
type Sum struct {
	// Exists says whether there is a record, deleted or not.
	Exists bool
	// Sum is that of the shards; resets have taken off what the record says.
	Sum int64
	Record
	// At is the moment, by the store's clock.
	At time.Time
}

// Sums looks counters up.
type Sums interface {
	// Sum reads the counter's record and all its shards at one moment: every fold that
	// was committed by then is in it, and none after. Errors match countmill.ErrUnavailable,
	// or countmill.ErrOverflow where there is no such number.
	Sum(ctx context.Context, counter string) (Sum, error)
}

// A Store is where the records of counters are changed. Concurrent calls are allowed.
type Store interface {
	// Check returns the settings in effect: for how long the ids of resets are remembered.
	Check(ctx context.Context) (store.Checked, error)

	// RaiseCounter makes sure that the counter has a record, not a deleted one, that names
	// at least shards shards, and returns how many it names. Where it names more, nothing
	// is changed. It may be repeated.
	RaiseCounter(ctx context.Context, counter string, shards int) (int, error)

	// ResetCounter applies r to the counter's record and inserts its marker, in one
	// transaction. Where the marker is there already it does nothing and returns what the
	// marker says. Folds are neither waited for nor aborted: they do not touch the record.
	//
	// It may be repeated with the same ID, and must be where its outcome is not known. An
	// error that matches ErrChanged, countmill.ErrUnavailable or countmill.ErrOverflow
	// means that nothing was done.
	ResetCounter(ctx context.Context, r Reset) (Done, error)

	// SweepCounters removes counters that were deleted at least after ago, by the store's
	// clock, and whose shards sum to their baselines: record and shards together, in a
	// transaction that looks again. It returns how many; a store may need several calls
	// to be sure.
	//
	// An aggregator that asks for the record of a deleted counter is told that there is
	// none (aggregator.Recorder.Shards), and its raise ends the deletion. So nobody but
	// those who asked before the delete folds into one that is removed.
	SweepCounters(ctx context.Context, after time.Duration) (removed int, err error)
}
