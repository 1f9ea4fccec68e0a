package httpserver

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/auth"
)

// TypePrefix makes a problem's type of its word.
const TypePrefix = "urn:countmill:problem:"

// How long clients are asked to wait. Guesses: an open batch leaves within a second; a backend
// that is unavailable seldom comes back within five.
const (
	retryOverloaded  = time.Second
	retryUnavailable = 5 * time.Second
	retryUncounted   = time.Second
)

// A Problem is an error as clients see it (RFC 9457). Handlers return one if the errors of
// package countmill do not say enough.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Index *int   `json:"index,omitempty"`
	Line  *int   `json:"line,omitempty"`
	Lines []int  `json:"lines,omitempty"` // all that are wrong, if that is known
	Field string `json:"field,omitempty"`
	Limit string `json:"limit,omitempty"`

	// Conflicts are the increments of the request that were not counted; all others were.
	Conflicts []countmill.Conflict `json:"conflicts,omitempty"`

	// Progress is how far the work is that the caller waits for.
	Progress *Progress `json:"progress,omitempty"`

	// Header is sent along: Allow, Retry-After, Accept.
	Header http.Header `json:"-"`
}

// Progress is how many ranges of some work there are, and how many are done.
type Progress struct {
	Ranges int `json:"ranges"`
	Done   int `json:"ranges_done"`
}

// Error is the detail, or the title if there is none.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

// NewProblem is a problem of the type urn:countmill:problem:word.
func NewProblem(status int, word, title, detail string) *Problem {
	return &Problem{Type: TypePrefix + word, Title: title, Status: status, Detail: detail}
}

func (p *Problem) with(header, value string) *Problem {
	if p.Header == nil {
		p.Header = make(http.Header, 1)
	}
	p.Header.Set(header, value)
	return p
}

// RetryAfter says when to come again, in whole seconds, rounded up.
func (p *Problem) RetryAfter(d time.Duration) *Problem {
	return p.with("Retry-After", strconv.Itoa(int((d+time.Second-1)/time.Second)))
}

// AsProblem is the one place where errors become statuses. An error that says "maybe"
// wins over whatever else it matches.
func AsProblem(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if outside, ok := errors.AsType[*auth.OutsideError](err); ok {
		return outsideProblem(outside)
	}
	if quota, ok := errors.AsType[*auth.QuotaError](err); ok {
		return quotaProblem(quota)
	}
	switch {
	case errors.Is(err, countmill.ErrOutcomeUnknown):
		return NewProblem(http.StatusGatewayTimeout, "outcome-unknown", "outcome unknown",
			"this was maybe counted: repeat it only with the same ids or the same Idempotency-Key")
	case errors.Is(err, countmill.ErrInvalid):
		return invalidProblem(err)
	case errors.Is(err, countmill.ErrIDsReused):
		return reusedProblem(err)
	case errors.Is(err, countmill.ErrConflict):
		return NewProblem(http.StatusUnprocessableEntity, "id-reused", "id reused", err.Error())
	case errors.Is(err, countmill.ErrOverloaded):
		return NewProblem(http.StatusTooManyRequests, "overloaded", "overloaded",
			"a bound was reached, on memory or on what may wait: nothing of this request was done, repeat it later").RetryAfter(retryOverloaded)
	case errors.Is(err, countmill.ErrUnavailable):
		return NewProblem(http.StatusServiceUnavailable, "unavailable", "unavailable",
			"something that this call needs does not answer, or is too slow (see /readyz): nothing of this request was done, repeat it later").RetryAfter(retryUnavailable)
	case errors.Is(err, countmill.ErrClosed):
		return NewProblem(http.StatusServiceUnavailable, "closed", "closed",
			"this process is stopping: nothing of this request was done, repeat it later").RetryAfter(retryUnavailable)
	case errors.Is(err, countmill.ErrNotCountedYet):
		return NewProblem(http.StatusConflict, "not-counted-yet", "not counted yet", err.Error()).RetryAfter(retryUncounted)
	case errors.Is(err, countmill.ErrReceiptExpired):
		return NewProblem(http.StatusGone, "receipt-expired", "receipt expired", err.Error())
	case errors.Is(err, countmill.ErrIDExpired):
		return NewProblem(http.StatusGone, "id-expired", "id expired", err.Error())
	case errors.Is(err, countmill.ErrExhausted):
		return NewProblem(http.StatusConflict, "exhausted", "sequence exhausted", err.Error())
	case errors.Is(err, countmill.ErrOtherDatabase):
		return NewProblem(http.StatusGone, "other-database", "receipt of another database", err.Error())
	case errors.Is(err, countmill.ErrOverflow):
		return NewProblem(http.StatusInternalServerError, "overflow", "overflow", err.Error())
	}
	return NewProblem(http.StatusInternalServerError, "internal", "internal error",
		"this process's log has the text; whether anything was done is unknown")
}

// IsInternal reports whether clients learn nothing of the error.
func IsInternal(err error) bool { return AsProblem(err).Type == TypePrefix+"internal" }

func quotaProblem(err *auth.QuotaError) *Problem {
	p := NewProblem(http.StatusTooManyRequests, "quota", "quota", err.Error()+": nothing of this request was done, repeat it later")
	p.Field, p.Limit = err.Field, strconv.FormatInt(err.Limit, 10)
	return p.RetryAfter(err.RetryAfter)
}

func invalidProblem(err error) *Problem {
	p := NewProblem(http.StatusBadRequest, "invalid", "invalid request", err.Error())
	if f, ok := errors.AsType[*countmill.FieldError](err); ok {
		p.Detail = f.Error()
		p.Index, p.Line, p.Field, p.Limit = f.Index, f.Line, f.Field, f.Limit
	}
	return p
}

func reusedProblem(err error) *Problem {
	p := NewProblem(http.StatusUnprocessableEntity, "ids-reused", "ids reused", err.Error())
	if c, ok := errors.AsType[*countmill.ConflictsError](err); ok {
		p.Detail, p.Conflicts = c.Error(), slices.Clone(c.Conflicts)
		for i := range p.Conflicts {
			p.Conflicts[i].ID = auth.Redact(p.Conflicts[i].ID)
		}
	}
	return p
}

// WriteError answers with err as a problem. The full text, which clients do not see, goes to
// log: at error level for a status of 500, else at debug level, because an outage would write
// a line per request. Neither shows a token in the wrong place, such as the path or the query.
func WriteError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	p := AsProblem(err)
	level := slog.LevelDebug
	if p.Status == http.StatusInternalServerError {
		level = slog.LevelError
	}
	if log.Enabled(r.Context(), level) {
		log.LogAttrs(r.Context(), level, "request refused", slog.Int("status", p.Status),
			slog.String("method", auth.Redact(r.Method)), slog.String("path", auth.Redact(r.URL.EscapedPath())),
			slog.String("err", auth.Redact(err.Error())))
	}
	header := w.Header()
	for name, values := range p.Header {
		header[name] = values
	}
	shown := *p
	shown.Detail, shown.Field = auth.Redact(p.Detail), auth.Redact(p.Field)
	_ = write(w, p.Status, typeProblem, &shown, nil)
}
