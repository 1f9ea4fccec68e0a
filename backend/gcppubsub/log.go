package gcppubsub

import (
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"
)

// newLogger returns Watermill's logger. All its lines are at the debug level at most: this package logs its own lifecycle.
func newLogger(log *slog.Logger) watermill.LoggerAdapter {
	return watermill.NewSlogLoggerWithLevelMapping(log, map[slog.Level]slog.Level{slog.LevelError: slog.LevelDebug, slog.LevelInfo: slog.LevelDebug})
}

// A watchful logger reports errors too. After Subscribe one of them says that receiving has ended, and Watermill will retry after a
// growing delay.
type watchful struct {
	watermill.LoggerAdapter
	onError func(error) // must not block
}

// Error logs the error and reports it.
func (w watchful) Error(msg string, err error, fields watermill.LogFields) {
	w.LoggerAdapter.Error(msg, err, fields)
	if err != nil {
		w.onError(err)
	}
}

// With returns the same logger.
func (w watchful) With(watermill.LogFields) watermill.LoggerAdapter { return w }
