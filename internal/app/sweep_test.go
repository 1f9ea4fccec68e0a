package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store"
)

type sweepFunc func(context.Context) error

func (f sweepFunc) Sweep(ctx context.Context) error { return f(ctx) }

func TestSweepsGoOnAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sweeps := 0
		a := &App{log: slog.New(slog.DiscardHandler), backends: &backends{sweeper: sweepFunc(func(context.Context) error {
			sweeps++
			return errors.New("disk away")
		})}}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour+time.Minute)
		defer cancel()
		a.startSweeps(ctx)
		a.sweeping.Wait()
		a.stopSweeps()
		if sweeps != 3 {
			t.Errorf("got %d sweeps in 3 hours, want 3", sweeps)
		}
	})
}

// A sweep that takes long does not hold the end up.
func TestSweepsEndWithTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &App{log: slog.New(slog.DiscardHandler), cfg: Config{ShutdownTimeout: time.Second}, backends: &backends{
			sweeper: sweepFunc(func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}),
		}}
		a.startSweeps(t.Context())
		time.Sleep(store.SweepEvery + time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.closeBackends(ctx); err != nil {
			t.Error(err)
		}
	})
}
