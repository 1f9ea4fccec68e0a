package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// setWindow writes --dedup-window into the database if an aggregator was given it and the
// database says something else. Without it the database's own window holds.
func (a *App) setWindow() error {
	if a.cfg.DedupWindow == 0 || !a.cfg.Roles.Has(Aggregator) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	checked, err := a.backends.store.Check(ctx)
	if err != nil {
		return fmt.Errorf("--dedup-window: reading the window of the database: %w", err)
	}
	was := checked.Settings.Window
	if was == a.cfg.DedupWindow {
		return nil
	}
	for {
		set, err := a.backends.store.SetWindow(ctx, a.cfg.DedupWindow)
		if err == nil {
			a.log.LogAttrs(ctx, slog.LevelWarn, "deduplication window of the database set, as --dedup-window says",
				slog.Duration("from", was), slog.Duration("to", set.Window), slog.Int64("settings_version", set.Version))
			return nil
		}
		if errors.Is(err, store.ErrDeployment) || !sleep(ctx, time.Second) {
			return fmt.Errorf("--dedup-window: setting the window of the database from %s to %s: %w", was, a.cfg.DedupWindow, err)
		}
	}
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// window is how old the time of an increment may be: the deduplication window of the
// database, or the setting if this process has no database.
func (a *App) window() time.Duration {
	var known time.Duration
	if a.aggregator != nil {
		known = a.aggregator.Settings().Window
	}
	return cmp.Or(known, a.cfg.DedupWindow, countmill.DefaultDedupWindow)
}
