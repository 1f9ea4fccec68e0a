package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/countmill/countmill/store"
)

func (a *App) startSweeps(ctx context.Context) {
	ctx, a.stopSweeps = context.WithCancel(ctx)
	if a.backends.sweeper != nil || a.aggregator != nil {
		a.sweeping.Go(func() { a.sweep(ctx) })
	}
	if a.tokens != nil {
		a.sweeping.Go(func() { a.tokens.Watch(ctx, tokensEvery) })
	}
}

// tokensEvery is how often the file of tokens is read again, and how long a removed token
// stays in force at most. Removing all of them takes half a second more. A guess.
const tokensEvery = time.Second

// sweep forgets markers beyond the deduplication window, if the store does not do that by
// itself, counters that were deleted a day ago, and series beyond their retention. It runs until ctx ends.
func (a *App) sweep(ctx context.Context) {
	tick := time.NewTicker(store.SweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.sweepOnce(ctx)
		}
	}
}

func (a *App) sweepOnce(ctx context.Context) {
	warn := func(message string, err error) {
		if err != nil && ctx.Err() == nil {
			a.log.LogAttrs(ctx, slog.LevelWarn, message, slog.Any("err", err))
		}
	}
	if a.backends.sweeper != nil {
		warn("old markers not dropped, will try again", a.backends.sweeper.Sweep(ctx))
	}
	if a.aggregator != nil {
		_, err := a.backends.store.SweepCounters(ctx, store.SweepAfter)
		warn("deleted counters not removed, will try again", err)
		warn("series not swept, will try again", a.backends.store.SweepSeries(ctx))
	}
}
