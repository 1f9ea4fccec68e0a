package app

import (
	"context"
	"errors"
	"testing"

	"github.com/countmill/countmill/internal/testing/tracetest"
	"github.com/countmill/countmill/wire"
)

// startTraced is start with spans.
func startTraced(t *testing.T) (*running, *tracetest.Recorder) {
	t.Helper()
	spans := new(tracetest.Recorder)
	r := startWith(t, Config{Traces: spans})
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
	r := startWith(t, Config{Traces: spans})
	if last := r.services[len(r.services)-1].name; last != "traces" {
		t.Errorf("%s stops after the traces", last)
	}
	r.incr(t, `{"counter":"a"}`)
	r.stop(t)
	if _, bounded := spans.closed.Deadline(); !bounded {
		t.Error("the last export has no time limit")
	}
}
