package gcppubsub

import (
	"context"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"
)

// A logger receives Watermill's log lines. After Subscribe one of them is an error: receiving has
// ended, and Watermill will retry after a growing delay.
type logger struct {
	log     *slog.Logger
	onError func(error) // optional; must not block
}

// Error logs the error and calls onError.
func (l logger) Error(msg string, err error, fields watermill.LogFields) {
	l.write(slog.LevelDebug, msg, fields, slog.Any("err", err))
	if l.onError != nil && err != nil {
		l.onError(err)
	}
}

// Info logs at the debug level: this package logs its own lifecycle.
func (l logger) Info(msg string, fields watermill.LogFields) { l.write(slog.LevelDebug, msg, fields) }

// Debug logs at the debug level.
func (l logger) Debug(msg string, fields watermill.LogFields) { l.write(slog.LevelDebug, msg, fields) }

// Trace discards lines that come with every message.
func (logger) Trace(string, watermill.LogFields) {}

// With returns the same logger.
func (l logger) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l logger) write(level slog.Level, msg string, fields watermill.LogFields, attrs ...slog.Attr) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	for k, v := range fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	l.log.LogAttrs(context.Background(), level, "watermill: "+msg, attrs...)
}
