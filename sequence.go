package countmill

import (
	"strconv"
	"time"
)

// MaxValues is the most values of one NextRequest.
const MaxValues = 1000

// A NextRequest asks a sequence for its next values. A sequence is a named row of integers from 1, and
// gives each of them once.
type NextRequest struct {
	// Sequence is the name, with the rules of CheckCounter. It needs no creation, and has nothing
	// to do with a counter of the same name.
	Sequence string
	// ID identifies the request, 1 to 128 bytes. A repeat within the deduplication window gets the
	// same values. Empty: each call gets new values.
	ID string
	// Count is how many values the request gets, 1 to MaxValues. They follow each other. 0 means 1.
	Count int
	// Time is when the caller first made the request with this ID. A repeat with a Time before the
	// deduplication window is refused with ErrIDExpired. Zero: a repeat after the window gets new values.
	Time time.Time
}

// Values are consecutive values of a sequence, from First to Last.
type Values struct {
	First, Last int64
}

// Check reports whether the request can be answered. The error is a *FieldError that matches
// ErrInvalid.
func (r NextRequest) Check() error {
	if err := CheckCounter(r.Sequence); err != nil {
		if field, ok := err.(*FieldError); ok {
			if field.Field = "sequence"; IsGroup(r.Sequence) {
				field.Limit = "a name that does not begin with " + GroupMark
			}
		}
		return err
	}
	if r.ID != "" {
		if err := CheckID("id", r.ID); err != nil {
			return err
		}
	}
	if r.ID == "" && !r.Time.IsZero() {
		return &FieldError{Field: "time", Problem: "is given without an id", Limit: "only with an id"}
	}
	if r.Count < 0 || r.Count > MaxValues {
		return &FieldError{Field: "count", Problem: "is out of range", Limit: "1 to " + strconv.Itoa(MaxValues)}
	}
	return nil
}
