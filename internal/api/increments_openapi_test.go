package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/publisher"
)

// A failing sender answers every request alike.
type failing struct{ err error }

func (f failing) Publish(context.Context, ...countmill.Increment) (publisher.Sent, error) {
	return publisher.Sent{}, f.err
}

func (f failing) PublishPast(context.Context, time.Time, string, string, ...countmill.Increment) (publisher.Sent, error) {
	return publisher.Sent{}, f.err
}

func (f failing) PublishKeyed(context.Context, string, string, ...countmill.Increment) (publisher.Sent, error) {
	return publisher.Sent{}, f.err
}

// The OpenAPI document has every kind of answer.
func TestAnswersToIncrementsAreDocumented(t *testing.T) {
	t.Parallel()
	const jsonType = "application/json"
	doc := apitest.Load(t)
	for _, tc := range []struct {
		contentType, body string
		err               error
		status            int
	}{
		{jsonType, `{"counter":"a"}`, nil, 202},
		{"application/x-ndjson", `{"counter":"a"}`, nil, 202},
		{jsonType, `[{"counter":"a"},{"counter":"a","delta":0}]`, nil, 400},
		{"application/x-ndjson", "{\"counter\":\"a\"}\n{}", nil, 400},
		{jsonType, strings.Repeat(" ", httpserver.MaxBody+1), nil, 413},
		{"text/plain", "a", nil, 415},
		{jsonType, `{"counter":"a"}`, countmill.ErrConflict, 422},
		{jsonType, `{"counter":"a","id":"x"}`, &countmill.ConflictsError{Conflicts: []countmill.Conflict{{ID: "x"}}}, 422},
		{jsonType, `{"counter":"a"}`, countmill.ErrOverloaded, 429},
		{jsonType, `{"counter":"a"}`, &auth.QuotaError{Field: "bytes_per_second", Limit: 7, RetryAfter: 1}, 429},
		{jsonType, `{"counter":"a"}`, httpserver.NewProblem(507, "insufficient-storage", "full", "").RetryAfter(1), 507},
		{jsonType, `{"counter":"a"}`, fmt.Errorf("a fault"), 500},
		{jsonType, `{"counter":"a"}`, countmill.ErrUnavailable, 503},
		{jsonType, `{"counter":"a"}`, countmill.ErrClosed, 503},
		{jsonType, `{"counter":"a"}`, countmill.ErrOutcomeUnknown, 504},
	} {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "/v1/increments", strings.NewReader(tc.body))
		req.Header.Set("Content-Type", tc.contentType)
		serve(api.Services{Sender: failing{tc.err}}, api.Config{}).ServeHTTP(rec, req)
		if rec.Code != tc.status {
			t.Errorf("%.40s with %v: got %d, want %d", tc.body, tc.err, rec.Code, tc.status)
		}
		doc.CheckAnswer(t, http.MethodPost, "/v1/increments", rec.Code, rec.Header(), rec.Body.Bytes())
	}
	rec := httptest.NewRecorder()
	serve(api.Services{Sender: failing{}}, api.Config{}).ServeHTTP(rec, httptest.NewRequest(http.MethodPut, "/v1/increments", nil))
	doc.CheckSchema(t, "Problem", rec.Body.Bytes())
}
