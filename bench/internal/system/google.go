package system

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/bench/internal/load"
)

const (
	project = "bench"
	topic   = "increments"
	// A step of distinct counters goes in a flush of its own. So many may be on their way to the store,
	// which is enough to keep aggregators busy.
	distinctStep    = 10_000
	distinctPending = 3 * distinctStep

	pacedPublishers = 10
	pacedRate       = 100_000 // increments a second, of all publishers
)

func googleSystems() []System {
	const onBus = "on Pub/Sub durably (the emulator keeps it in memory only); the clock stops when all is folded, exactly once"
	all := classicSystems()
	for _, n := range []int{1, 2, 4} {
		all = append(all, System{
			Name: fmt.Sprintf("google/aggregators/%d", n), Ack: onBus, Loads: distinct,
			How:    fmt.Sprintf("Google's Pub/Sub and Firestore emulators; a publisher in this process, %d processes `countmill aggregator`; default settings, flushed every %d counters", n, distinctStep),
			Family: fmt.Sprintf("google/aggregators/%d", n), Against: "classic", Version: googleVersion,
			Open: openGoogle(n, 1, (*google).countDistinct),
		})
	}
	return append(all, System{
		Name: "google/paced", Ack: onBus, Loads: hot,
		How:    fmt.Sprintf("the same with %d publishers, %d increments a second in all, 1 aggregator, default lingers: for the entities written", pacedPublishers, pacedRate),
		Family: "google/paced", Version: googleVersion,
		Open: openGoogle(1, pacedPublishers, (*google).countPaced),
	})
}

// google is a deployment that counts.
type google struct {
	*Google
	count func(*google, context.Context, *load.Run) error
}

func openGoogle(aggregators, publishers int, count func(*google, context.Context, *load.Run) error) func(context.Context, Place) (Instance, error) {
	return func(ctx context.Context, at Place) (Instance, error) {
		deployment, err := OpenGoogle(ctx, at, aggregators, publishers)
		if err != nil {
			return nil, err
		}
		return &google{deployment, count}, nil
	}
}

// Count counts, and records the cost.
func (g *google) Count(ctx context.Context, r *load.Run) error {
	if err := g.count(g, ctx, r); err != nil {
		return err
	}
	done, err := g.folded(ctx)
	if err != nil {
		return err
	}
	n, _ := r.Done()
	r.Note("commits", done.commits)
	r.Note("entities_per_million", done.written*1e6/float64(max(n, 1)))
	return nil
}

// countDistinct sends steps of distinct counters, as fast as they are folded.
func (g *google) countDistinct(ctx context.Context, r *load.Run) error {
	defer r.Stop()
	pub, sent := g.Publishers[0], 0.0
	err := r.Walk(ctx, 1, distinctStep, func(ctx context.Context, _, _ int, order []uint32) error {
		for _, n := range order {
			if err := pub.Add(r.Names[n], 1); err != nil {
				return err
			}
		}
		if _, err := pub.Flush(ctx); err != nil {
			return err
		}
		sent += distinctStep
		return g.until(ctx, sent-distinctPending)
	})
	if err != nil {
		return err
	}
	return g.until(ctx, sent)
}

// countPaced makes every publisher add to one counter at an even rate.
func (g *google) countPaced(ctx context.Context, r *load.Run) error {
	const every = 10 * time.Millisecond
	each := pacedRate / len(g.Publishers) * int(every/time.Millisecond) / 1000
	begin := time.Now()
	var sent atomic.Int64
	group, adding := errgroup.WithContext(ctx)
	for _, pub := range g.Publishers {
		group.Go(func() error {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for n := 0; time.Since(begin) < r.Goal.Least; {
				select {
				case <-adding.Done():
					return adding.Err()
				case <-tick.C:
				}
				for due := each * int(time.Since(begin)/every); n < due; n++ { // also the increments of a late tick
					if err := pub.Add(r.Names[0], 1); err != nil {
						return err
					}
					sent.Add(1)
				}
			}
			_, err := pub.Flush(adding)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var entries float64
	for _, pub := range g.Publishers {
		entries += float64(pub.Stats().Entries)
	}
	if err := g.until(ctx, entries); err != nil {
		return err
	}
	r.Foreign(sent.Load(), time.Since(begin))
	return nil
}

// Check sums the shards without using countmill.
func (g *google) Check(ctx context.Context, r *load.Run) error {
	totals, err := sums(ctx, g.Firestore, "CountmillShard", "name", "count")
	if err != nil {
		return err
	}
	return checkSums(ctx, r, totals)
}
