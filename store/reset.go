package store

import (
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A ResetRequest sets a counter's baseline to the sum that a look-up has found.
type ResetRequest struct {
	// ID is that of the marker, of wire.ResetClass.
	ID      wire.PartID
	Counter string
	// Look is what was found.
	Look Sum
	// Delete hides the counter as well, until it is incremented again.
	Delete bool
	// At and ExpireAt are the times of the marker: see Marker.
	At, ExpireAt time.Time
}

// A ResetResult is the effect of a reset. The marker of the reset holds it.
type ResetResult struct {
	// Removed is the amount that the reset subtracted from the total: everything folded by
	// At and not subtracted before.
	Removed int64
	// At is the moment from which the counter counts again.
	At time.Time
}

// A ResetState is what resets and deletes have written into a counter's record. It is zero
// if there were none.
type ResetState struct {
	// Baseline is subtracted from the sum of the shards to get the total.
	Baseline int64
	// ResetAt is the moment at which Baseline was the sum.
	ResetAt time.Time
	// DeletedAt is zero for a counter that is not deleted. A deleted counter exists again
	// while its sum differs from Baseline.
	DeletedAt time.Time
}

// Apply is what a store has to do to the record that it finds, nil for none, in the
// transaction that inserts the marker; now is the store's time in it. It returns the record
// as it is to be, nil where there is nothing to write.
//
//	it finds                            it does
//	no record                           nothing: nothing was removed
//	no record, where the look-up did    ErrChanged: the counter has been swept
//	another reset_at than the look-up   ErrChanged: another reset came between, or the
//	                                    counter was swept and made anew
//	a look-up over MaxLook ago         ErrChanged
//	anything else                       baseline = sum, reset_at = the look-up's moment
//
// So the look-up of a reset has always seen the reset before it, and its sum includes
// everything removed by then, whatever the clocks said. reset_at only rises: after a reset by
// a clock that was ahead it grows by a microsecond. The answer names the look-up's moment.
//
// With Delete it sets deleted_at as well, unless that is set and nothing was folded since.
func (r *ResetRequest) Apply(found *ResetState, now time.Time) (after *ResetState, done ResetResult, err error) {
	done.At = r.Look.At
	switch late := now.Sub(r.Look.At); {
	case late > MaxLook || late < -MaxLook:
		return nil, done, fmt.Errorf("%w: that was %s ago (limit: %s)", ErrChanged, late, MaxLook)
	case found == nil && r.Look.Exists:
		return nil, done, ErrChanged
	case found == nil:
		return nil, done, nil
	case !found.ResetAt.Equal(r.Look.ResetAt):
		return nil, done, ErrChanged
	}
	if done.Removed, err = less(r.Look.Sum, found.Baseline); err != nil {
		return nil, done, fmt.Errorf("%w: counter %q", err, r.Counter)
	}
	next := *found
	next.Baseline, next.ResetAt = r.Look.Sum, r.Look.At
	if !next.ResetAt.After(found.ResetAt) {
		next.ResetAt = found.ResetAt.Add(time.Microsecond)
	}
	if r.Delete && (done.Removed != 0 || found.DeletedAt.IsZero()) {
		next.DeletedAt = now
	}
	return &next, done, nil
}

// less is a-b, or countmill.ErrOverflow.
func less(a, b int64) (int64, error) {
	d := a - b
	if (d < a) != (b > 0) {
		return 0, countmill.ErrOverflow
	}
	return d, nil
}
