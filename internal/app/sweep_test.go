package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestSweepsGoOnAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sweeps := 0
		a := &App{log: slog.New(slog.DiscardHandler), backends: &backends{sweep: func(time.Time) error {
			sweeps++
			return errors.New("disk away")
		}}}
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
