package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

// ErrDenied: the call needs a token, or another one (HTTP 401 and 403). Nothing was done.
var ErrDenied = errors.New("denied")

// ErrNotFound: it does not exist, or this server's role does not serve it (HTTP 404).
var ErrNotFound = errors.New("not found")

// ErrSilent is matched by the error of a stream on which nothing came for as long as WithSilence allows.
var ErrSilent = errors.New("the server sent nothing")

// ErrDeadLettered: the totals lack increments of the receipt that are in dead letters.
var ErrDeadLettered = errors.New("in dead letters")

// A DeadLetterRef is a dead letter with increments of a receipt.
type DeadLetterRef struct {
	// The key of a dead letter that has increments of the receipt. They are not counted.
	Key string `json:"key"`
	// Whether a person has discarded it. Otherwise it waits for one.
	Discarded bool `json:"discarded"`
}

// A DeadLetteredError comes with totals that lack increments of the receipt. It matches ErrDeadLettered.
type DeadLetteredError struct{ DeadLetters []DeadLetterRef }

// Error is one line.
func (e *DeadLetteredError) Error() string {
	return fmt.Sprintf("%v: increments of the receipt are in %d dead letters (first: %s)", ErrDeadLettered, len(e.DeadLetters), e.DeadLetters[0].Key)
}

// Is makes errors.Is(err, ErrDeadLettered) true.
func (e *DeadLetteredError) Is(target error) bool { return target == ErrDeadLettered }

// An Error is a problem that the server answered with.
type Error struct {
	// Status is the HTTP status.
	Status int `json:"status"`
	// Type is the last word of the problem's type: invalid, quota, outcome-unknown, ... It is
	// empty if the answer came from another program, and the outcome is then unknown.
	Type string `json:"-"`
	// Title and Detail are for people.
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Field, Limit, Index and Line describe the error in the request. Lines are all lines of NDJSON with counters that the
	// token lacks.
	Field string `json:"field"`
	Limit string `json:"limit"`
	Index *int   `json:"index"`
	Line  *int   `json:"line"`
	Lines []int  `json:"lines"`
	// Conflicts are the increments that were not counted, of type ids-reused.
	Conflicts []countmill.Conflict `json:"conflicts"`
	// RetryAfter is how long the server asks to wait; 0 if it does not say.
	RetryAfter time.Duration `json:"-"`
}

// Error is one line.
func (e *Error) Error() string {
	text := cmp.Or(e.Detail, e.Title)
	if e.Type == "" {
		text = strings.TrimSuffix("another program answers, a proxy or no countmill: "+text, ": ")
	}
	return fmt.Sprintf("%s (HTTP %d)", text, e.Status)
}

// Is makes errors.Is true for the sentinel of the error.
func (e *Error) Is(target error) bool { return target == e.sentinel() }

// As makes errors.As find a *countmill.ConflictsError.
func (e *Error) As(target any) bool {
	to, ok := target.(**countmill.ConflictsError)
	if !ok || e.Type != "ids-reused" || len(e.Conflicts) == 0 {
		return false
	}
	*to = &countmill.ConflictsError{Conflicts: e.Conflicts}
	return true
}

func (e *Error) sentinel() error {
	switch e.Type {
	case "": // a proxy may answer after the server has counted
		return countmill.ErrOutcomeUnknown
	case "id-reused", "other-count":
		return countmill.ErrConflict
	case "ids-reused":
		return countmill.ErrIDsReused
	case "not-counted-yet":
		return countmill.ErrNotCountedYet
	case "receipt-expired":
		return countmill.ErrReceiptExpired
	case "id-expired":
		return countmill.ErrIDExpired
	case "exhausted":
		return countmill.ErrExhausted
	case "other-database":
		return countmill.ErrOtherDatabase
	case "not-serving":
		return countmill.ErrUnavailable
	case "overflow":
		return countmill.ErrOverflow
	case "outcome-unknown":
		return countmill.ErrOutcomeUnknown
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrDenied
	case http.StatusNotFound:
		return ErrNotFound
	case http.StatusTooManyRequests:
		return countmill.ErrOverloaded
	case http.StatusRequestTimeout, http.StatusServiceUnavailable, http.StatusInsufficientStorage, http.StatusNotImplemented:
		return countmill.ErrUnavailable
	}
	if e.Status >= 500 {
		return countmill.ErrOutcomeUnknown
	}
	return countmill.ErrInvalid
}

// repeatable reports whether a repeat may succeed.
func (e *Error) repeatable() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInsufficientStorage:
		return e.Type != "overflow"
	}
	return false
}

// open reports whether the try was maybe applied.
func (e *Error) open() bool { return errors.Is(e, countmill.ErrOutcomeUnknown) }

// problem reads a problem. Another program's error need not be JSON.
func problem(text []byte) *Error {
	var p struct {
		Error
		URN string `json:"type"`
	}
	_ = json.Unmarshal(text, &p)
	if word, ours := strings.CutPrefix(p.URN, "urn:countmill:problem:"); ours {
		p.Error.Type = word
	}
	return &p.Error
}

// unreached is the error of a request that no server got.
type unreached struct {
	base  string
	cause error
}

func (e *unreached) Error() string {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](e.cause)
	switch {
	case untrusted:
		return fmt.Sprintf("%s is not trusted: %v", e.base, innermost(e.cause))
	case e.wrong():
		return fmt.Sprintf("%s answers without TLS: write http:// instead of https://", e.base)
	case errors.Is(e.cause, context.Canceled):
		return fmt.Sprintf("nothing was sent to %s: %v", e.base, context.Canceled)
	}
	return fmt.Sprintf("nothing answers at %s (%v)", e.base, innermost(e.cause))
}

// wrong reports whether something answers, and a person must change the address or its certificate.
func (e *unreached) wrong() bool {
	_, plain := errors.AsType[tls.RecordHeaderError](e.cause)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](e.cause)
	return plain || untrusted || errors.Is(e.cause, http.ErrSchemeMismatch)
}

func (e *unreached) Is(target error) bool {
	if e.wrong() {
		return target == countmill.ErrInvalid
	}
	return target == countmill.ErrUnavailable
}
func (e *unreached) Unwrap() error { return e.cause }

// broken is the error of a request whose answer did not come.
type broken struct {
	base  string
	cause error
}

func (e *broken) Error() string {
	if errors.Is(e.cause, context.DeadlineExceeded) {
		return e.base + " did not answer in time"
	}
	return fmt.Sprintf("%s: %v", e.base, innermost(e.cause))
}
func (e *broken) Is(target error) bool { return target == countmill.ErrOutcomeUnknown }
func (e *broken) Unwrap() error        { return e.cause }

// innermost is an error without the method and the address that net/http and net add.
func innermost(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	return err
}

// A CallError is the error of a call with a key, or with an id that the client has drawn. After
// countmill.ErrOutcomeUnknown the same call with Key counts once: pass it to Increment by WithKey, to
// Reset as its id, or to Next as NextRequest.ID.
type CallError struct {
	Key string
	err error
}

// Error is one line. It has the key if a repeat needs it.
func (e *CallError) Error() string {
	if errors.Is(e.err, countmill.ErrOutcomeUnknown) {
		return fmt.Sprintf("%v; the key of the call is %s", e.err, e.Key)
	}
	return e.err.Error()
}

// Unwrap returns the error without the key.
func (e *CallError) Unwrap() error { return e.err }

// keyed adds the key to an error.
func keyed(key string, err error) error {
	if err == nil || key == "" {
		return err
	}
	return &CallError{key, err}
}

// An outcome replaces the sentinel of the last try by that of the whole call.
type outcome struct {
	sentinel error
	says     string
	last     error
}

func (e *outcome) Error() string { return e.says + ": " + e.last.Error() }

// Is matches the call's sentinel, and of the last try only whether its context ended.
func (e *outcome) Is(target error) bool {
	return target == e.sentinel || (target == context.Canceled || target == context.DeadlineExceeded) && errors.Is(e.last, target)
}

// As finds the errors of the last try, such as its *Error, but not its sentinel.
func (e *outcome) As(target any) bool { return errors.As(e.last, target) }
