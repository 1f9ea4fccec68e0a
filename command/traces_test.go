package command

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/countmill/countmill/backend"
)

// A variable that asks for traces is not ignored in silence.
func TestAProgramWithoutTracesSaysSo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		environ []string
		lines   int
	}{
		{nil, 0}, {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT="}, 0}, {[]string{"OTEL_SERVICE_NAME=a"}, 0},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://secret@localhost:4318"}, 1}, {[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://secret@localhost:4318"}, 1},
	} {
		var log bytes.Buffer
		got, err := (&host{environ: tt.environ}).openTraces(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
		if got != nil || err != nil {
			t.Errorf("%q: got %v, %v", tt.environ, got, err)
		}
		if text := log.String(); strings.Count(text, "\n") != tt.lines || strings.Count(text, "countmill-backup") != tt.lines || strings.Contains(text, "secret") {
			t.Errorf("%q: the log has %q, want %d lines", tt.environ, text, tt.lines)
		}
	}
}

// An exporter that another module adds is opened before anything else, and its error is one of usage.
func TestTheErrorOfAnExporterEndsTheCommand(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	code := Main(Context(t.Context()), Args("up", "--listen", "127.0.0.1:0", "--data", t.TempDir()), Environ(nil), Streams(nil, &out, &errOut),
		WithTraces(func(context.Context, *slog.Logger) (backend.Traces, error) {
			return nil, errors.New("THE_VARIABLE is wrong")
		}))
	if code != 2 || !strings.Contains(errOut.String(), "traces: THE_VARIABLE is wrong") || out.Len() > 0 {
		t.Errorf("exit %d, output %q, errors %q", code, out.String(), errOut.String())
	}
}
