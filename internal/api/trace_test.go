package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/testing/tracetest"
	"github.com/countmill/countmill/wire"
)

// newTraced is an API that records its requests.
func newTraced(t *testing.T, s *recorder, d *fakeReceiver) (http.Handler, *tracetest.Recorder) {
	t.Helper()
	spans := new(tracetest.Recorder)
	a := New(Services{Sender: s, BatchReceiver: d}, Config{Roles: []string{"publisher"}, Tracer: spans})
	rt := httpserver.NewRouter(nil)
	a.Register(rt)
	return rt, spans
}

// ask sends a request with these values of traceparent.
func ask(h http.Handler, method, path, body string, traceparent ...string) int {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", typeJSON)
	if path == "/v1/batches" {
		r.Header.Set("Content-Type", typeBatch)
	}
	for _, value := range traceparent {
		r.Header.Add("traceparent", value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// Only requests of the way to a fold are spans, and a caller's decision is followed.
func TestOtherRequestsAreNoSpans(t *testing.T) {
	t.Parallel()
	h, spans := newTraced(t, &recorder{}, &fakeReceiver{})
	unsampled := tracetest.Caller(1)
	unsampled.Sampled = false
	ask(h, "GET", "/healthz", "", tracetest.Caller(1).String())
	ask(h, "GET", "/v1/increments", "", tracetest.Caller(1).String())
	ask(h, "POST", "/v1/increments", `{"counter":"a"}`, unsampled.String())
	if got := spans.Spans(); len(got) > 0 {
		t.Errorf("got %+v, want no span", got)
	}
}

func TestAMalformedHeaderIsIgnored(t *testing.T) {
	t.Parallel()
	h, spans := newTraced(t, &recorder{}, &fakeReceiver{})
	good := tracetest.Caller(1).String()
	for i, values := range [][]string{{}, {""}, {"x"}, {good + "0"}, {strings.Repeat(good, 1000)}, {good, good}, {good + "," + good}} {
		if status := ask(h, "POST", "/v1/increments", `{"counter":"a"}`, values...); status != http.StatusAccepted {
			t.Errorf("%.60q: got %d, want 202", values, status)
		}
		if got := spans.Spans(); len(got) != i+1 || got[i].Parent != (wire.Trace{}) {
			t.Errorf("%.60q: got %+v, want a trace of its own", values, got)
		}
	}
}

// A span has the status of the answer, and nothing of its text.
func TestASpanHasTheStatus(t *testing.T) {
	t.Parallel()
	s := &recorder{}
	h, spans := newTraced(t, s, &fakeReceiver{})
	for i, tt := range []struct {
		err     error
		status  int
		failure string
	}{
		{countmill.ErrOverloaded, http.StatusTooManyRequests, ""}, {countmill.ErrOutcomeUnknown, http.StatusGatewayTimeout, "504"},
		{errors.New("private:name broke"), http.StatusInternalServerError, "500"},
	} {
		s.err = tt.err
		status := ask(h, "POST", "/v1/increments", `{"counter":"private:name"}`)
		got := spans.Spans()[i]
		if status != tt.status || got.Figures[0].Value != int64(tt.status) || got.Failure != tt.failure {
			t.Errorf("%v: got %d and %+v, want %d and failure %q", tt.err, status, got, tt.status, tt.failure)
		}
	}
}
