package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// A sweptStore removes nothing by itself.
type sweptStore struct {
	store.Store
	sweep func(context.Context) error
}

func (s sweptStore) Sweep(ctx context.Context) error { return s.sweep(ctx) }

// The first sweep is within half an hour. One that takes long does not hold the end up.
func TestSweepsEndWithTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := false
		b := &backends{store: sweptStore{sweep: func(ctx context.Context) error {
			begun = true
			<-ctx.Done()
			return ctx.Err()
		}}}
		runs := startAll(t.Context(), sweeps(Config{Roles: Indexer, Logger: slog.New(slog.DiscardHandler)}, b))
		time.Sleep(30 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := errors.Join(closing{backends: b}.Stop(ctx), runs.rest(true)); err != nil || !begun {
			t.Errorf("got %v, swept: %t", err, begun)
		}
	})
}

// A movingStore counts the calls of MoveSeries, which fail.
type movingStore struct {
	*protocoltest.Store
	moves int
}

func (s *movingStore) MoveSeries(context.Context) (int, error) {
	s.moves++
	return 0, store.ErrContended
}

// A process that folds moves series every MoveEvery, also after errors, if its store has a ring.
func TestProcessesMoveSeries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what    string
		role    Roles
		options protocoltest.Options
		want    int
	}{
		{"an aggregator", Aggregator, protocoltest.Options{}, int(time.Hour / store.MoveEvery)},
		{"a reader", Reader, protocoltest.Options{}, 0},
		{"a store without a ring", Aggregator, protocoltest.Options{GrowsInFold: true}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &movingStore{Store: protocoltest.New(c.options)}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Second)
			defer cancel()
			if err := startAll(ctx, sweeps(Config{Roles: c.role, Logger: slog.New(slog.DiscardHandler)}, &backends{store: s})).rest(true); err != nil {
				t.Error(err)
			}
			if s.moves != c.want {
				t.Errorf("%s moved %d times in an hour, want %d", c.what, s.moves, c.want)
			}
		})
	}
}
