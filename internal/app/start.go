package app

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// ErrStopped is returned by Start when its context ended before the App was ready.
// Nothing was accepted.
var ErrStopped = errors.New("stopped while starting")

// stopStart is how long Start lets New finish after its context ended.
const stopStart = time.Second

// Start is New for a process that may get a signal to stop meanwhile: a server may not
// answer, and a directory may have a large log to read. When ctx ends, Start returns
// ErrStopped within a second. A backend may still be opening then, so the caller must end the
// process. That is safe: opening survives a kill at any moment.
func Start(ctx context.Context, cfg Config) (*App, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	return startApp(ctx, cfg, openBackends)
}

func startApp(ctx context.Context, cfg Config, open func(Config) (*backends, error)) (*App, error) {
	var a *App
	var err error
	made, closed := make(chan struct{}), make(chan struct{})
	go func() {
		a, err = newApp(cfg, open)
		close(made)
	}()
	select {
	case <-made:
		return a, err
	case <-ctx.Done():
	}
	go func() {
		defer close(closed)
		if <-made; a != nil {
			_ = a.Close()
		}
	}()
	log := cfg.withDefaults().Logger
	select {
	case <-closed:
		log.LogAttrs(ctx, slog.LevelInfo, "stopped while starting: nothing was accepted")
	case <-time.After(stopStart):
		log.LogAttrs(ctx, slog.LevelWarn, "stopped while starting, without waiting for what is being opened: nothing was accepted, and nothing is lost")
	}
	return nil, ErrStopped
}
