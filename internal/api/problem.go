package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/countmill/countmill"
)

// typePrefix makes a problem's type of its word.
const typePrefix = "urn:countmill:problem:"

// How long clients are asked to wait. Guesses: an open batch leaves within a second;
// what is away seldom comes back sooner than in five.
const (
	retryOverloaded  = time.Second
	retryUnavailable = 5 * time.Second
)

// Header values that every answer shares; nothing may change them in place.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
)

// A Problem is an error as clients see it (RFC 9457). Handlers return one where the
// errors of package countmill do not say enough.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Index *int   `json:"index,omitempty"`
	Line  *int   `json:"line,omitempty"`
	Field string `json:"field,omitempty"`
	Limit string `json:"limit,omitempty"`

	// Header is sent along: Allow, Retry-After, Accept.
	Header http.Header `json:"-"`
}

// Error is the detail, or the title where there is none.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

// NewProblem is a problem of the type urn:countmill:problem:word.
func NewProblem(status int, word, title, detail string) *Problem {
	return &Problem{Type: typePrefix + word, Title: title, Status: status, Detail: detail}
}

func (p *Problem) with(header, value string) *Problem {
	if p.Header == nil {
		p.Header = make(http.Header, 1)
	}
	p.Header.Set(header, value)
	return p
}

func (p *Problem) retryAfter(d time.Duration) *Problem {
	return p.with("Retry-After", strconv.Itoa(int(d/time.Second)))
}

// AsProblem is the one place where errors become statuses. An error that says "maybe"
// wins over whatever else it matches.
func AsProblem(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	switch {
	case errors.Is(err, countmill.ErrOutcomeUnknown):
		return NewProblem(http.StatusGatewayTimeout, "outcome-unknown", "outcome unknown",
			"this was maybe counted: repeat it only with the same ids or the same Idempotency-Key")
	case errors.Is(err, countmill.ErrInvalid):
		return invalidProblem(err)
	case errors.Is(err, countmill.ErrConflict):
		return NewProblem(http.StatusUnprocessableEntity, "id-reused", "id reused", err.Error())
	case errors.Is(err, countmill.ErrOverloaded):
		return NewProblem(http.StatusTooManyRequests, "overloaded", "overloaded",
			"a bound on memory was reached: nothing of this request was done, repeat it later").retryAfter(retryOverloaded)
	case errors.Is(err, countmill.ErrUnavailable):
		return NewProblem(http.StatusServiceUnavailable, "unavailable", "unavailable",
			"something this call needs is away or too slow (see /readyz): nothing of this request was done, repeat it later").retryAfter(retryUnavailable)
	case errors.Is(err, countmill.ErrClosed):
		return NewProblem(http.StatusServiceUnavailable, "closed", "closed",
			"this process is stopping: nothing of this request was done, repeat it later").retryAfter(retryUnavailable)
	case errors.Is(err, countmill.ErrOverflow):
		return NewProblem(http.StatusInternalServerError, "overflow", "overflow", err.Error())
	}
	return NewProblem(http.StatusInternalServerError, "internal", "internal error",
		"this process's log has the text; whether anything was done is unknown")
}

// asProblemOf also knows the request: a context that ended leaves a read undone and
// anything else maybe done.
func asProblemOf(r *http.Request, err error) *Problem {
	p := AsProblem(err)
	if p.Type != typePrefix+"internal" || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return p
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return AsProblem(countmill.ErrUnavailable)
	}
	return AsProblem(countmill.ErrOutcomeUnknown)
}

func invalidProblem(err error) *Problem {
	p := NewProblem(http.StatusBadRequest, "invalid", "invalid request", err.Error())
	if f, ok := errors.AsType[*countmill.FieldError](err); ok {
		p.Detail = f.Error()
		p.Index, p.Line, p.Field, p.Limit = f.Index, f.Line, f.Field, f.Limit
	}
	return p
}

// WriteError answers with err as a problem. The full text of what clients are not
// shown goes to log: at error level for a status of 500, else at debug level, because
// an outage would write a line per request.
func WriteError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	p := asProblemOf(r, err)
	level := slog.LevelDebug
	if p.Status == http.StatusInternalServerError {
		level = slog.LevelError
	}
	log.LogAttrs(r.Context(), level, "request refused", slog.Int("status", p.Status),
		slog.String("method", r.Method), slog.String("path", r.URL.EscapedPath()), slog.Any("err", err))
	header := w.Header()
	for name, values := range p.Header {
		header[name] = values
	}
	write(w, p.Status, typeProblem, p)
}

// WriteJSON answers with v. An answer must not be stored by anyone in between, as
// totals age and problems pass.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	write(w, status, typeJSON, v)
}

func write(w http.ResponseWriter, status int, contentType []string, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // a value that can never be JSON; Recover logs it and answers
	}
	header := w.Header()
	header["Content-Type"] = contentType
	header["Cache-Control"] = noStore
	header["X-Content-Type-Options"] = noSniff
	header.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	w.Write(body.Bytes()) // an error means that the client is gone
}
