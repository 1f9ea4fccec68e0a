package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// setWindow writes --dedup-window into the database if an aggregator was given it and the
// database says something else. Without it the database's own window holds.
func setWindow(cfg Config, s store.Store) error {
	if cfg.DedupWindow == 0 || !cfg.Roles.Has(Aggregator) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	checked, err := s.Check(ctx)
	if err != nil {
		return fmt.Errorf("--dedup-window: reading the window of the database: %w", err)
	}
	was := checked.Settings.Window
	if was == cfg.DedupWindow {
		return nil
	}
	for {
		set, err := s.SetWindow(ctx, cfg.DedupWindow)
		if err == nil {
			cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "deduplication window of the database set, as --dedup-window says",
				slog.Duration("from", was), slog.Duration("to", set.Window), slog.Int64("settings_version", set.Version))
			return nil
		}
		if errors.Is(err, store.ErrDeployment) || !clock.Sleep(ctx, time.Second) {
			return fmt.Errorf("--dedup-window: setting the window of the database from %s to %s: %w", was, cfg.DedupWindow, err)
		}
	}
}
