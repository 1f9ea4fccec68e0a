package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/internal/emulator"
	safe "github.com/countmill/countmill/store"
)

func TestSweepsGoOnAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sweeps := 0
		a := &App{log: slog.New(slog.DiscardHandler), backends: &backends{sweep: func(context.Context, time.Time) error {
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

// A sweep that takes long does not hold the end up.
func TestSweepsEndWithTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &App{log: slog.New(slog.DiscardHandler), cfg: Config{ShutdownTimeout: time.Second}, backends: &backends{
			sweep: func(ctx context.Context, _ time.Time) error {
				<-ctx.Done()
				return ctx.Err()
			},
		}}
		a.startSweeps(t.Context())
		time.Sleep(safe.SweepEvery + time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.closeBackends(ctx); err != nil {
			t.Error(err)
		}
	})
}

// An aggregator sweeps where the store has no TTL policy, and shows it.
func TestSweepsWithoutTTL(t *testing.T) { // not parallel: it sets a variable
	for _, c := range []struct {
		host, params string
		roles        Roles
		want         bool
	}{
		{emulator.Datastore(t), "", Aggregator, true},
		{emulator.Datastore(t), "?sweep=off", Aggregator, false},
		{emulator.Datastore(t), "", Reader, false},
		{emulator.Firestore(t), "", Aggregator, false},
		{emulator.Firestore(t), "?sweep=on", Aggregator, true},
	} {
		t.Setenv("DATASTORE_EMULATOR_HOST", c.host)
		u, err := parseURL("store", "datastore://"+emulator.Project()+c.params)
		if err != nil {
			t.Fatal(err)
		}
		b := &backends{}
		if err := b.openDatastore(u, Config{Roles: c.roles, Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		if got := b.sweep != nil; got != c.want || got != (b.swept != nil) {
			t.Errorf("%q, %s: sweeps %t, counts %t; want %t", c.params, c.roles, got, b.swept != nil, c.want)
		}
		if c.want {
			if err := b.sweep(t.Context(), time.Now()); err != nil {
				t.Error(err)
			}
			a := &App{backends: b}
			if s := a.sweepSamples(); len(s) != 1 || s[0].name != "countmill_markers_swept_total" {
				t.Errorf("samples %v", s)
			}
		}
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}
}
