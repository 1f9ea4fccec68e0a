package store

import (
	"fmt"
	"time"

	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// A ResetRequest sets a counter's baseline to the sum that a look-up has found.
type ResetRequest struct {
	// ID is the id of the marker, of wire.ResetClass.
	ID      wire.PartID
	Counter string
	// Look is the result of the look-up.
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
	Removed int128.Int
	// At is the moment from which the counter counts again.
	At time.Time
}

// A ResetState is what resets and deletes have written into a counter's record. It is zero
// if there were none.
type ResetState struct {
	// Baseline is subtracted from the sum of the shards to get the total.
	Baseline int128.Int
	// ResetAt is the moment at which Baseline was the sum.
	ResetAt time.Time
	// DeletedAt is zero for a counter that is not deleted. A deleted counter exists again
	// while its sum differs from Baseline.
	DeletedAt time.Time
}

// Apply computes the change of the record in the transaction that inserts the marker. found is
// the record's state in the transaction, nil if there is no record, and now is the store's time.
// It returns the new state, or nil if there is nothing to write.
//
//	found                               result
//	no record                           nothing: nothing was removed
//	no record, but the look-up had one  ErrChanged: the counter was swept
//	another ResetAt than the look-up    ErrChanged: another reset came between, or the
//	                                    counter was swept and made again
//	a look-up over MaxLook ago          ErrChanged
//	anything else                       Baseline = sum, ResetAt = the look-up's moment
//
// So the look-up of a reset has always seen the reset before it. Its sum includes everything that
// was removed by then, even if clocks are wrong. ResetAt only rises: after a reset by a clock
// that was ahead, it grows by a microsecond. The result names the moment of the look-up.
//
// With Delete, Apply sets DeletedAt too, unless it is set and nothing was folded since.
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
	done.Removed = r.Look.Sum.Sub(found.Baseline)
	next := *found
	next.Baseline, next.ResetAt = r.Look.Sum, r.Look.At
	if !next.ResetAt.After(found.ResetAt) {
		next.ResetAt = found.ResetAt.Add(time.Microsecond)
	}
	if r.Delete && (done.Removed != int128.Int{} || found.DeletedAt.IsZero()) {
		next.DeletedAt = now
	}
	return &next, done, nil
}
