package reader

import (
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
)

// MaxAhead is how far the moment that a caller asks for may be ahead of the store's.
const MaxAhead = time.Second

// reachTries bounds the reads of one reach. A store whose clock was set back lets its moments
// advance a little slower than time, so one wait may be too short.
const reachTries = 5

// readSince reads totals of a moment that is not before the caller's own.
func (r *Reader) readSince(ctx context.Context, counters []string, b bound) (totals []Total, err error) {
	err = reach(ctx, b.since, func() (time.Time, error) {
		if totals, err = r.readTotals(ctx, counters); err != nil {
			return time.Time{}, err
		}
		return totals[0].AsOf, nil
	})
	if err != nil {
		return nil, err
	}
	return totals, nil
}

// reach calls read until it answers a moment that is not before since. The moments of a store never
// go back, so a moment that it gave out before is there at once.
func reach(ctx context.Context, since time.Time, read func() (time.Time, error)) error {
	for tries := 1; ; tries++ {
		at, err := read()
		ahead := since.Sub(at)
		switch {
		case err != nil || ahead <= 0:
			return err
		case ahead > MaxAhead || tries == reachTries:
			return &countmill.FieldError{
				Field: "min_as_of", Problem: fmt.Sprintf("is %s ahead of the store's time", ahead.Round(time.Millisecond)),
				Limit: "an as_of or a counted_as_of of an answer, or a time at most " + MaxAhead.String() + " ahead",
			}
		}
		if err := pause(ctx, ahead+time.Millisecond); err != nil {
			return err
		}
	}
}

// pause waits, and returns an error if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	if !clock.Sleep(ctx, d) {
		return fmt.Errorf("%w: reading totals: %w", countmill.ErrUnavailable, context.Cause(ctx))
	}
	return nil
}
