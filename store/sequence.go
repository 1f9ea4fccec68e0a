package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// Sequences gives out the values of sequences. Concurrent calls are allowed, also for one sequence:
// each call is one transaction.
type Sequences interface {
	// NextValues gives each take the next values of the sequence, in the order of takes, and inserts
	// their markers, all in one transaction. A take whose marker exists gets the values in the marker,
	// whatever its Count is, and changes nothing. A sequence without an entity begins at 1.
	//
	// After nil the values are durable: no crash lets another take have them. The store never repeats
	// the transaction by itself. After an error it was maybe applied, unless the error matches
	// countmill.ErrUnavailable or ErrNotApplied. A repeat with the same ids is right after any error.
	//
	// takes has 1 to MaxTakes takes. No id is in it twice.
	NextValues(ctx context.Context, sequence string, takes []Take) ([]Given, error)

	// Sequence returns the state of a sequence. Every value up to Last was given before the call, or
	// is never given; each value that an answer had before the call is at most Last.
	Sequence(ctx context.Context, sequence string) (SequenceState, error)

	// DeleteSequence marks the sequence as deleted and returns the state before. Its last value stays,
	// so later takes get higher values, and end the deletion. It may be repeated. Errors are
	// those of NextValues.
	DeleteSequence(ctx context.Context, sequence string) (SequenceState, error)
}

// MaxTakes is the most takes of one NextValues. A transaction of Datastore then writes 101 entities.
const MaxTakes = 100

// RestoreSkip is how many values each sequence leaves out when the directory of a store was restored
// from a backup. The lost process may have given that many values after the backup.
const RestoreSkip = 1 << 20

// A Take asks for values of a sequence.
type Take struct {
	// ID is the id of the marker, of wire.SequenceClass.
	ID wire.PartID
	// Count is the number of values, at least 1.
	Count int
	// At and ExpireAt are the times of the marker: see Marker.
	At, ExpireAt time.Time
}

// CheckTakes refuses takes that break a rule of NextValues. Its error matches countmill.ErrUnavailable and
// ErrRefused.
func CheckTakes(takes []Take) error {
	if len(takes) < 1 || len(takes) > MaxTakes {
		return fmt.Errorf("%w: %w: %d takes of a sequence (limit: 1 to %d)", countmill.ErrUnavailable, ErrRefused, len(takes), MaxTakes)
	}
	for i := range takes {
		if t := &takes[i]; t.ID.Class() != wire.SequenceClass || t.Count < 1 {
			return fmt.Errorf("%w: %w: a take of %d values by the id %s", countmill.ErrUnavailable, ErrRefused, t.Count, t.ID)
		}
	}
	return nil
}

// Given is the values of a take: Count values from First. Its zero value means that the sequence has
// fewer values left: nothing was given, and no marker inserted.
type Given struct {
	First int64
	Count int
}

// A SequenceState is the stored state of a sequence.
type SequenceState struct {
	// Last is the last value; 0 if there was none. Skip raises it also for a sequence that was not used.
	Last int64
	// Used reports whether the store has given a value.
	Used bool
	// Deleted is when the sequence was deleted; zero if it is not.
	Deleted time.Time
}

// Exists reports whether the sequence was used since its last deletion.
func (s SequenceState) Exists() bool { return s.Used && s.Deleted.IsZero() }

// Give changes the state by a take of count values. If fewer are left, it changes nothing and returns
// the zero Given.
func (s *SequenceState) Give(count int) Given {
	if int64(count) > math.MaxInt64-s.Last {
		return Given{}
	}
	g := Given{First: s.Last + 1, Count: count}
	s.Last, s.Used, s.Deleted = s.Last+int64(count), true, time.Time{}
	return g
}

// Skip leaves out the values of so many restores.
func (s *SequenceState) Skip(restores int64) {
	if restores > (math.MaxInt64-s.Last)/RestoreSkip {
		s.Last = math.MaxInt64
		return
	}
	s.Last += restores * RestoreSkip
}
