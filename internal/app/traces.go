package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/countmill/countmill/backend"
)

// traceTimeout bounds the last export of spans. A guess: a collector is near, and spans are worth little.
const traceTimeout = 3 * time.Second

// tracing is the exporter of spans. It stops last, after everything that has spans.
type tracing struct {
	idle
	backend.Traces
	log *slog.Logger
}

// traces is empty unless spans are recorded.
func traces(cfg Config) []named {
	if cfg.Traces == nil {
		return nil
	}
	return []named{{"traces", tracing{Traces: cfg.Traces, log: cfg.Logger}}}
}

// Stop does not fail: nothing that was accepted depends on spans.
func (t tracing) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	if err := t.Close(ctx); err != nil {
		t.log.LogAttrs(ctx, slog.LevelWarn, "the last spans were not sent", slog.Any("err", err))
	}
	return nil
}
