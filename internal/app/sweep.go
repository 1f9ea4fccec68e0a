package app

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countmill/countmill/store"
)

// sweeping removes old data from the store every hour and once soon after the start, and does other work for the store more often: it moves series to the
// archive. Its chores follow each other. With an indexer, whose steps do so too, and two recounts an aggregator has four jobs beside its folds
// at most. They need no turns of their own: on Datastore they are 4 of the 100 calls that a connection takes, and a fifth of a processor.
type sweeping struct {
	idle
	log    *slog.Logger
	first  []chore // chores that run once soon after the start: a process may live for less than an hour
	chores []chore
	moves  []chore
	every  *task

	balances *balances
}

// A chore is a removal or a move. A failed one is tried again with the next round.
type chore struct {
	failed string // in the log
	do     func(context.Context) error
}

// sweeps is one if this process has anything to remove: markers beyond the deduplication window and old records of the journal, counters that were deleted a day ago, and series that end.
func sweeps(cfg Config, b *backends) []named {
	s := &sweeping{log: cfg.Logger, every: b.task(), balances: &b.balances}
	if cfg.Roles.Has(Aggregator | Indexer) { // others may not write
		s.first = append(s.first, chore{"old markers and records not removed, will try again", b.store.Sweep})
		s.chores = append(s.chores, s.first...)
	}
	if cfg.Roles.Has(Aggregator) {
		s.chores = append(s.chores, chore{"deleted counters not removed, will try again", func(ctx context.Context) error {
			_, err := b.store.SweepCounters(ctx, store.SweepAfter)
			return err
		}}, chore{"series not swept, will try again", b.store.SweepSeries})
		tend := chore{"opening balances for recounts not written, will try again", func(ctx context.Context) error {
			return b.balances.tend(ctx, cfg, b.store)
		}}
		s.first, s.chores = append(s.first, tend), append(s.chores, tend)
		if b.store.Limits().Ring.Buckets > 0 {
			s.moves = append(s.moves, chore{"series not moved to the archive, will try again", func(ctx context.Context) error {
				_, err := b.store.MoveSeries(ctx)
				return err
			}})
		}
	}
	if len(s.chores) == 0 {
		return nil
	}
	return []named{{"sweeps", s}}
}

func (s *sweeping) Routes(to *surface) { to.Unbalanced = s.balances.unbalanced }

func (s *sweeping) Collect() []prometheus.Collector { return samples(s.balances.samples) }

// Run does the chores until ctx ends.
func (s *sweeping) Run(ctx context.Context) error {
	return s.every.run(ctx, func(ctx context.Context) error {
		// At random, as many processes may start together.
		soon, tick, often := time.NewTimer(5*time.Minute+rand.N(25*time.Minute)), time.NewTicker(store.SweepEvery), time.NewTicker(store.MoveEvery)
		defer soon.Stop()
		defer tick.Stop()
		defer often.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-soon.C:
				s.do(ctx, s.first)
			case <-tick.C:
				s.do(ctx, s.chores)
			case <-often.C:
				s.do(ctx, s.moves)
			}
		}
	})
}

func (s *sweeping) do(ctx context.Context, chores []chore) {
	for _, c := range chores {
		if err := c.do(ctx); err != nil && ctx.Err() == nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, c.failed, slog.Any("err", err))
		}
	}
}
