package httpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/countmill/countmill"
)

func TestErrorsBecomeProblems(t *testing.T) {
	t.Parallel()
	three := 3
	field := &countmill.FieldError{Field: "delta", Problem: "holds <&>", Limit: "not 0", Line: &three}
	for _, tc := range []struct {
		name       string
		err        error
		method     string
		status     int
		word       string
		retryAfter string
		detail     string // part of it
	}{
		{"invalid", fmt.Errorf("%w: no", countmill.ErrInvalid), "POST", 400, "invalid", "", "no"},
		{"field", fmt.Errorf("request: %w", field), "POST", 400, "invalid", "", "line 3: delta holds <&> (limit: not 0)"},
		{"conflict", fmt.Errorf("%w: key k", countmill.ErrConflict), "POST", 422, "id-reused", "", "key k"},
		{"conflicts", fmt.Errorf("x: %w", &countmill.ConflictsError{Conflicts: []countmill.Conflict{{Position: 3, Counter: "a", ID: "e", Delta: -5}}}), "POST", 422, "ids-reused", "", "1 increment was not counted, because another delta was counted under its id before: counter \"a\", id \"e\", delta -5, at position 3; all others"},
		{"overloaded", fmt.Errorf("%w: secret", countmill.ErrOverloaded), "POST", 429, "overloaded", "1", "nothing of this request"},
		{"unavailable", fmt.Errorf("%w: secret", countmill.ErrUnavailable), "POST", 503, "unavailable", "5", "nothing of this request"},
		{"closed", fmt.Errorf("%w: secret", countmill.ErrClosed), "POST", 503, "closed", "5", "nothing of this request"},
		{"unknown", fmt.Errorf("%w: secret", countmill.ErrOutcomeUnknown), "POST", 504, "outcome-unknown", "", "maybe counted"},
		{"overflow", fmt.Errorf("counter a: %w", countmill.ErrOverflow), "GET", 500, "overflow", "", "counter a"},
		{"other", errors.New("secret"), "POST", 500, "internal", "", "log"},
		{"maybe wins", errors.Join(countmill.ErrUnavailable, field, countmill.ErrOutcomeUnknown), "POST", 504, "outcome-unknown", "", "maybe counted"},
		{"unavailable by deadline", fmt.Errorf("%w: %w", countmill.ErrUnavailable, context.DeadlineExceeded), "POST", 503, "unavailable", "5", ""},
		{"problem", fmt.Errorf("x: %w", NewProblem(409, "lower", "lower", "why")), "PATCH", 409, "lower", "", "why"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var logged bytes.Buffer
			log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))
			w := httptest.NewRecorder()
			WriteError(w, httptest.NewRequest(tc.method, "/v1/a%2Fb?q=1", nil), log, tc.err)
			p := problemOf(t, w.Result())
			if p.Status != tc.status || p.Type != TypePrefix+tc.word || !strings.Contains(p.Detail, tc.detail) || p.Title == "" {
				t.Errorf("got %+v, want status %d, type %s, detail with %q", p, tc.status, tc.word, tc.detail)
			}
			if got := w.Header().Get("Retry-After"); got != tc.retryAfter {
				t.Errorf("got Retry-After %q, want %q", got, tc.retryAfter)
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the client is shown internals: %s", w.Body)
			}
			if tc.name == "field" && (p.Field != "delta" || p.Limit != "not 0" || *p.Line != 3 || w.Header().Get("Cache-Control") != "no-store" || !strings.Contains(w.Body.String(), "<&>")) {
				t.Errorf("got %+v and %v", p, w.Header())
			}
			if isError := strings.Contains(logged.String(), "level=ERROR"); isError != (tc.status == 500) {
				t.Errorf("status %d: logged %q", tc.status, logged.String())
			}
			if tc.word == "internal" && !strings.Contains(logged.String(), "secret") {
				t.Errorf("got log %q, want the full text in it", logged.String())
			}
		})
	}
}

// problemOf reads an answer that must be a problem.
func problemOf(tb testing.TB, resp *http.Response) Problem {
	tb.Helper()
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
		tb.Errorf("got Content-Type %q, want application/problem+json", got)
	}
	var p Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		tb.Fatalf("problem: %v", err)
	}
	if p.Status != resp.StatusCode {
		tb.Errorf("problem says status %d, the answer has %d", p.Status, resp.StatusCode)
	}
	return p
}
