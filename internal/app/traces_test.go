package app

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/httpbus"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/testing/tracetest"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

// startTraced is start with spans.
func startTraced(t *testing.T) (*running, *tracetest.Recorder) {
	t.Helper()
	spans := new(tracetest.Recorder)
	a, err := New(Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir()), Traces: spans})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a)
	t.Cleanup(func() { r.stop(t) })
	return r, spans
}

// spansOf are the spans of one kind.
func spansOf(spans *tracetest.Recorder, kind wire.StepKind) (of []tracetest.Span) {
	for _, s := range spans.Spans() {
		if s.Kind == kind {
			of = append(of, s)
		}
	}
	return of
}

// The way of an increment is three spans, each the child of the one before.
func TestARequestIsFollowedToItsFold(t *testing.T) {
	t.Parallel()
	r, spans := startTraced(t)
	caller := tracetest.Caller(1)
	r.incr(t, `{"counter":"private:name"}`, "traceparent", caller.String())
	r.stop(t)
	all := spans.Spans()
	requests, sends, folds := spansOf(spans, wire.RequestStep), spansOf(spans, wire.SendStep), spansOf(spans, wire.FoldStep)
	if len(all) != 3 || len(requests) != 1 || len(sends) != 1 || len(folds) != 1 {
		t.Fatalf("got %+v, want a request, a message and a commit", all)
	}
	if requests[0].Parent != caller || sends[0].Parent != requests[0].Trace || folds[0].Parent != sends[0].Trace || folds[0].Trace.ID != caller.ID {
		t.Errorf("got %+v, want each step to be a child of the one before", all)
	}
}

// A batch of another process is one more step between its message and the fold.
func TestABatchOverHTTPIsFollowedToItsFold(t *testing.T) {
	t.Parallel()
	r, spans := startTraced(t)
	bus, err := httpbus.Open(r.url)
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	own := new(tracetest.Recorder)
	p, err := publisher.New(bus, publisher.Config{Tracer: own})
	if err != nil {
		t.Fatal(err)
	}
	caller := tracetest.Caller(1)
	if _, err := p.Publish(wire.WithTrace(t.Context(), caller), countmill.Increment{Counter: "a", Delta: 1}); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantTotal(t, "a", 1)
	r.stop(t)
	sent, requests, folds := own.Spans(), spansOf(spans, wire.RequestStep), spansOf(spans, wire.FoldStep)
	if len(sent) != 1 || len(requests) != 1 || len(folds) != 1 || len(spans.Spans()) != 2 {
		t.Fatalf("got %+v of the sender and %+v of up", sent, spans.Spans())
	}
	if sent[0].Parent != caller || requests[0].Parent != sent[0].Trace || requests[0].Name != "POST /v1/batches" || folds[0].Parent != requests[0].Trace {
		t.Errorf("got %+v, then %+v, want each step to be a child of the one before", sent, spans.Spans())
	}
}

// A request that is not sampled or not let in leaves no span. A malformed header changes no answer.
func TestOnlySampledRequestsOfKnownCallersHaveSpans(t *testing.T) {
	t.Parallel()
	r, spans := startTraced(t)
	unsampled := tracetest.Caller(1)
	unsampled.Sampled = false
	r.incr(t, `{"counter":"a"}`, "traceparent", unsampled.String())
	r.wantTotal(t, "a", 1)
	if got := spans.Spans(); len(got) > 0 {
		t.Errorf("got %+v of a request that is not sampled", got)
	}
	r.incr(t, `{"counter":"a"}`, "traceparent", strings.Repeat("0", 55))
	r.wantTotal(t, "a", 2)
	r.stop(t)
	if got := spansOf(spans, wire.RequestStep); len(got) != 1 || got[0].Parent != (wire.Trace{}) {
		t.Errorf("a malformed header: got %+v, want a trace of its own", got)
	}

	spans = new(tracetest.Recorder)
	path, _ := authtest.File(t, auth.Token{Name: "a", Scopes: []auth.Scope{auth.Publish}})
	a, err := New(Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir()), Tokens: path, Traces: spans})
	if err != nil {
		t.Fatal(err)
	}
	r = run(t, a)
	if status, _ := r.call(t, "POST", "/v1/increments", `{"counter":"a"}`, "traceparent", tracetest.Caller(1).String()); status != http.StatusUnauthorized {
		t.Errorf("without a token: got %d", status)
	}
	r.stop(t)
	if got := spans.Spans(); len(got) > 0 {
		t.Errorf("got %+v of a caller without a token", got)
	}
}

// deaf is an exporter whose collector does not answer.
type deaf struct {
	tracetest.Recorder
	closed context.Context
}

func (d *deaf) Close(ctx context.Context) error {
	d.closed = ctx
	<-ctx.Done()
	return errors.New("no answer")
}

// A collector that does not answer neither fails the stop nor delays it for long.
func TestADeafCollectorDoesNotKeepTheProcess(t *testing.T) {
	t.Parallel()
	spans := new(deaf)
	a, err := New(Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir()), Traces: spans})
	if err != nil {
		t.Fatal(err)
	}
	if last := a.services[len(a.services)-1].name; last != "traces" {
		t.Errorf("%s stops after the traces", last)
	}
	r := run(t, a)
	r.incr(t, `{"counter":"a"}`)
	r.stop(t)
	if _, bounded := spans.closed.Deadline(); !bounded {
		t.Error("the last export has no time limit")
	}
}
