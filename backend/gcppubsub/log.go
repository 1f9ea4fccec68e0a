package gcppubsub

import (
	"context"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"
)

// A logger takes Watermill's lines. It has one error to say after Subscribe: that
// receiving has ended, and is tried again after a wait that only grows.
type logger struct {
	log     *slog.Logger
	onError func(error) // optional; must not block
}

// Error logs and tells onError.
func (l logger) Error(msg string, err error, fields watermill.LogFields) {
	l.write(slog.LevelDebug, msg, fields, slog.Any("err", err))
	if l.onError != nil && err != nil {
		l.onError(err)
	}
}

// Info logs for debugging: this package has lines of its own.
func (l logger) Info(msg string, fields watermill.LogFields) { l.write(slog.LevelDebug, msg, fields) }

// Debug logs.
func (l logger) Debug(msg string, fields watermill.LogFields) { l.write(slog.LevelDebug, msg, fields) }

// Trace discards what there is for every message.
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
