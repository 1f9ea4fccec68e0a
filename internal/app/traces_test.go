package app

import (
	"context"
	"errors"
	"testing"

	"github.com/countmill/countmill/internal/testing/tracetest"
)

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
