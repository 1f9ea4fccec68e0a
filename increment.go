package countmill

import (
	"time"
	"unicode/utf8"
)

const (
	// MaxDelta bounds the absolute value of the delta of one increment: 2^53-1, the largest
	// integer that every JSON reader keeps exact.
	MaxDelta = 1<<53 - 1

	// MaxID is the longest id of an increment and the longest Idempotency-Key, in bytes.
	MaxID = 128

	// MaxAhead is how far an increment's time may be in the future.
	MaxAhead = 5 * time.Minute

	// DefaultDedupWindow is how long ids are remembered, and the maximum age of an increment's
	// time, unless the deployment sets another window.
	DefaultDedupWindow = 8 * 24 * time.Hour
)

// An Increment adds Delta to the counter named Counter.
type Increment struct {
	Counter string
	// Delta is from -MaxDelta to MaxDelta, but not 0.
	Delta int64
	// ID makes a repeat harmless: the same ID on the same counter counts once within
	// the deduplication window, from any sender. 1 to MaxID bytes of UTF-8; empty for an anonymous increment.
	ID string
	// Time is when the event happened; zero for now. A caller that may repeat an increment after
	// the deduplication window must send the same Time. The repeat is then refused, and never
	// counted again.
	Time time.Time
}

// Check returns the first problem of the increment, as a *FieldError that matches ErrInvalid. now
// and window bound Time.
func (inc Increment) Check(now time.Time, window time.Duration) error {
	if err := CheckCounter(inc.Counter); err != nil {
		return err
	}
	if err := CheckDelta(inc.Delta); err != nil {
		return err
	}
	if inc.ID != "" {
		if err := CheckID("id", inc.ID); err != nil {
			return err
		}
	}
	if inc.Time.IsZero() {
		return nil
	}
	return CheckTime(inc.Time, now, window)
}

// CheckDelta reports whether delta can be added in one increment.
func CheckDelta(delta int64) error {
	switch {
	case delta == 0:
		return &FieldError{Field: "delta", Problem: "is 0", Limit: "not 0"}
	case delta > MaxDelta || delta < -MaxDelta:
		return &FieldError{Field: "delta", Problem: "is out of range", Limit: "-9007199254740991 to 9007199254740991"}
	}
	return nil
}

// CheckID reports whether id can be an increment's id or an Idempotency-Key: 1 to
// MaxID bytes of valid UTF-8 without control characters. field names it in the error.
func CheckID(field, id string) error {
	switch {
	case id == "":
		return &FieldError{Field: field, Problem: "is empty", Limit: "1 to 128 bytes"}
	case len(id) > MaxID:
		return &FieldError{Field: field, Problem: "is too long", Limit: "1 to 128 bytes"}
	case !utf8.ValidString(id):
		return &FieldError{Field: field, Problem: "is not valid UTF-8", Limit: "valid UTF-8"}
	}
	for _, r := range id {
		if isControl(r) {
			return &FieldError{Field: field, Problem: "holds a control character", Limit: "no control characters"}
		}
	}
	return nil
}

// CheckTime reports whether t can be an increment's time: not older than the deduplication window
// and at most MaxAhead in the future.
func CheckTime(t, now time.Time, window time.Duration) error {
	switch {
	case t.Before(now.Add(-window)):
		return &FieldError{Field: "time", Problem: "is beyond the deduplication window", Limit: "at most " + window.String() + " ago"}
	case t.After(now.Add(MaxAhead)):
		return &FieldError{Field: "time", Problem: "is in the future", Limit: "at most 5m0s ahead"}
	}
	return nil
}
