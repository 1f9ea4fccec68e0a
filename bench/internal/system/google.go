package system

import (
	"context"
	"fmt"

	"github.com/countmill/countmill/bench/internal/load"
)

const (
	project = "bench"
	topic   = "increments"
	// A step of distinct counters goes in a flush of its own. So many may be on their way to the store,
	// which is enough to keep aggregators busy.
	distinctStep    = 10_000
	distinctPending = 3 * distinctStep
)

func googleSystems() []System {
	all := classicSystems()
	for _, n := range []int{1, 4} {
		all = append(all, System{
			Name: fmt.Sprintf("google/aggregators/%d", n), Loads: distinct,
			Ack:    "on Pub/Sub durably (the emulator keeps it in memory only); the clock stops when all is folded, exactly once",
			How:    fmt.Sprintf("Google's Pub/Sub and Firestore emulators; a publisher in this process, %d processes `countmill aggregator`; default settings, flushed every %d counters", n, distinctStep),
			Family: fmt.Sprintf("google/aggregators/%d", n), Against: "classic", Version: googleVersion,
			Open: func(ctx context.Context, at Place) (Instance, error) {
				deployment, err := OpenGoogle(ctx, at, n)
				if err != nil {
					return nil, err
				}
				return &google{deployment}, nil
			},
		})
	}
	return all
}

// google is a deployment that counts.
type google struct{ *Google }

// Count counts, and records the cost.
func (g *google) Count(ctx context.Context, r *load.Run) error {
	if err := g.countDistinct(ctx, r); err != nil {
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
	pub, sent := g.Publisher, 0
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
		return g.Folded(ctx, sent-distinctPending)
	})
	if err != nil {
		return err
	}
	return g.Folded(ctx, sent)
}

// Check sums the shards without using countmill.
func (g *google) Check(ctx context.Context, r *load.Run) error {
	totals, err := sums(ctx, g.Firestore, "CountmillShard", "name", "count")
	if err != nil {
		return err
	}
	return checkSums(ctx, r, totals)
}
