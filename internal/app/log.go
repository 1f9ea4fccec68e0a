package app

import (
	"io"
	"log/slog"
	"time"

	"github.com/countmill/countmill/internal/auth"
)

// NewLogger logs to w as the configuration says.
func NewLogger(cfg Config, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.LogLevel)) // the flag takes level names only
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: plain}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// plain writes an error as its one line, because slog's text would add Pebble's stack traces.
// It writes a duration as 25s, because slog's JSON would count nanoseconds. It leaves out text
// that looks like a token.
func plain(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case error:
		a.Value = slog.StringValue(auth.Redact(v.Error()))
	case string:
		a.Value = slog.StringValue(auth.Redact(v))
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	}
	return a
}
