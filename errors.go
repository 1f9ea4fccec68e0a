package countmill

import (
	"errors"
	"strconv"
	"strings"
)

// The errors that callers act on. Every other error is internal.
var (
	// ErrInvalid: the input can never be counted. Correct it; do not repeat it.
	ErrInvalid = errors.New("invalid")

	// ErrConflict: an Idempotency-Key was used before with another body, or the id of a
	// NextRequest with another Count. Nothing of this request was counted or given.
	ErrConflict = errors.New("id reused")

	// ErrIDsReused: some increments have ids that were counted before with other deltas. They
	// were not counted; all others of the call were. The error is a *ConflictsError that names
	// them.
	ErrIDsReused = errors.New("ids reused")

	// ErrOverloaded: certainly not counted, because a bound on memory or on waiting calls was
	// reached. Repeat later.
	ErrOverloaded = errors.New("overloaded")

	// ErrUnavailable: certainly not counted, or no total can be read, because something that
	// countmill needs is unavailable. Repeat later.
	ErrUnavailable = errors.New("unavailable")

	// ErrOutcomeUnknown: maybe counted. Repeat only with the same ids or the same
	// Idempotency-Key.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrClosed: certainly not counted, because the publisher or the bus is closed.
	ErrClosed = errors.New("closed")

	// ErrNotCountedYet: some increments of a receipt were not counted within the time that the caller
	// waited. Ask again later.
	ErrNotCountedYet = errors.New("not counted yet")

	// ErrReceiptExpired: a receipt is older than the deduplication window. It is unknown
	// whether its increments were counted.
	ErrReceiptExpired = errors.New("receipt expired")

	// ErrIDExpired: the time of a repeated request is before the deduplication window, so the
	// values of its id are forgotten. Nothing was given.
	ErrIDExpired = errors.New("id expired")

	// ErrOtherDatabase: a receipt is of another database than the answering one.
	ErrOtherDatabase = errors.New("receipt of another database")

	// ErrExhausted: a sequence has fewer values left than were asked for. Nothing was given.
	ErrExhausted = errors.New("sequence exhausted")

	// ErrOverflow: a total does not fit a signed 64-bit integer. Later increments, or a reset, bring it back.
	ErrOverflow = errors.New("total does not fit 64 bits")
)

// A Conflict is an increment that was not counted, because another delta was counted under its id.
type Conflict struct {
	Position int    `json:"position"` // in the request, from 0
	Counter  string `json:"counter"`
	ID       string `json:"id"`
	Delta    int64  `json:"delta"` // that was not counted
}

// A ConflictsError names the increments of a request that were not counted. All others were
// counted. Do not repeat any of them: a repeat with the same ids gets the same answer. It matches
// ErrIDsReused.
type ConflictsError struct{ Conflicts []Conflict }

// Error returns one line with the number of conflicts and the first of them.
func (e *ConflictsError) Error() string {
	first, what := e.Conflicts[0], "1 increment was not counted, because another delta was counted under its id before: "
	if n := len(e.Conflicts); n > 1 {
		what = strconv.Itoa(n) + " increments were not counted, because other deltas were counted under their ids before, such as "
	}
	return what + "counter " + strconv.Quote(first.Counter) + ", id " + strconv.Quote(first.ID) + ", delta " + strconv.FormatInt(first.Delta, 10) +
		", at position " + strconv.Itoa(first.Position) + "; all others of the request were counted"
}

// Is makes errors.Is(err, ErrIDsReused) true.
func (e *ConflictsError) Is(target error) bool { return target == ErrIDsReused }

// A FieldError says which field of the input is wrong and what its limit is. It
// matches ErrInvalid.
type FieldError struct {
	Field   string // the name in the API: counter, delta, id, time, ...
	Problem string // the problem: "is empty"
	Limit   string // the limit: "1 to 500 bytes"; empty if there is none

	// The place in a request of several increments: Index is the position in an array from 0,
	// Line the line of NDJSON from 1. They are pointers because 0 is a position.
	Index *int
	Line  *int
}

// Error returns one line: place, field, problem, limit.
func (e *FieldError) Error() string {
	var b strings.Builder
	if e.Index != nil {
		b.WriteString("increment " + strconv.Itoa(*e.Index) + ": ")
	}
	if e.Line != nil {
		b.WriteString("line " + strconv.Itoa(*e.Line) + ": ")
	}
	if e.Field != "" {
		b.WriteString(e.Field + " ")
	}
	b.WriteString(e.Problem)
	if e.Limit != "" {
		b.WriteString(" (limit: " + e.Limit + ")")
	}
	return b.String()
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }
