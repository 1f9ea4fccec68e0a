package wire

import "time"

// A HeldError is the error of a bus that cannot pass a message on at present, and expects a person
// or time to change that. The message is not lost: the publisher sends it again.
type HeldError struct {
	Reason error
	// After is how long the publisher should wait at least; 0 leaves it to the publisher. It waits
	// at most 30s.
	After time.Duration
	// Alone is set if the reason is the message itself: the publisher sends others while this one waits.
	Alone bool
}

func (e *HeldError) Error() string { return e.Reason.Error() }

// Unwrap returns the reason.
func (e *HeldError) Unwrap() error { return e.Reason }
