package app

import (
	"context"
	"log/slog"
	"time"
)

// sweepEvery is how often markers that are beyond the horizon are dropped where the store
// does not do that by itself. It is done in lots of days, so this need not be often.
const sweepEvery = time.Hour

func (a *App) startSweeps(ctx context.Context) {
	ctx, a.stopSweeps = context.WithCancel(ctx)
	if a.backends.sweep != nil {
		a.sweeping.Go(func() { a.sweep(ctx) })
	}
}

// sweep runs until ctx ends.
func (a *App) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if err := a.backends.sweep(ctx, now); err != nil && ctx.Err() == nil {
				a.log.LogAttrs(ctx, slog.LevelWarn, "old markers not dropped, will try again", slog.Any("err", err))
			}
		}
	}
}
