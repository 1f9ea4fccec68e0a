package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/client"
)

const (
	// quietFor is how long all aggregators must have been idle before the totals are compared. It is
	// longer than Pub/Sub's ack deadline of 10 s, after which it delivers the messages of a killed
	// aggregator again. If a repeat counted twice, that would happen before the comparison.
	quietFor = 15 * time.Second
	// patience is how long accepted increments may stay uncounted.
	patience = 5 * time.Minute
)

// settled waits until all accepted increments are counted, and reads the totals. It also returns the
// last time at which an aggregator had work.
func settled(ctx context.Context, cfg config, f *fleet, want map[string]int64) (time.Time, map[string]int64, error) {
	last := time.Now()
	if cfg.bus == "" { // an accepted increment is counted at once
		got, err := f.reader.totals(ctx, cfg.prefix)
		return last, got, err
	}
	counters := make([]string, 0, len(want))
	for name := range want {
		counters = append(counters, cfg.prefix+name)
	}
	slices.Sort(counters)
	for deadline := time.Now().Add(patience); ; {
		var err error
		if last, err = f.quiet(ctx, deadline); err != nil {
			return last, nil, err
		}
		got, err := f.reader.byName(ctx, counters, cfg.workers)
		if err != nil || !short(cfg.prefix, want, got) || time.Now().After(deadline) {
			return last, got, err
		}
	}
}

// short reports whether a total is below the sent sum: the rest may be on the bus.
func short(prefix string, want, got map[string]int64) bool {
	for name, n := range want {
		if got[prefix+name] < n {
			return true
		}
	}
	return false
}

// byName reads the totals of counters whose names are known, all from the store. On Google's emulator,
// listing them would take most of an hour, because each page costs as much as all of them.
func (r *remote) byName(ctx context.Context, counters []string, workers int) (map[string]int64, error) {
	var mu sync.Mutex
	got := make(map[string]int64, len(counters))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for some := range slices.Chunk(counters, 1000) {
		group.Go(func() error {
			totals, err := r.Totals(ctx, some, client.WithMaxStaleness(0))
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for i, t := range totals {
				if t.Counter != some[i] {
					return fmt.Errorf("asked for counter %s, got %s", some[i], t.Counter)
				}
				if t.Exists {
					got[t.Counter] = t.Total
				}
			}
			return nil
		})
	}
	return got, group.Wait()
}

// quiet waits until all aggregators have been idle for quietFor, or until the deadline. It returns the
// last time at which one had work.
func (f *fleet) quiet(ctx context.Context, deadline time.Time) (time.Time, error) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	last, before := time.Now(), -1.0
	for {
		received, held := 0.0, 0.0
		for _, c := range f.aggregators {
			seen, err := c.metrics(ctx, []string{"countmill_messages_received_total", "countmill_held_messages"})
			if err != nil {
				return last, fmt.Errorf("read the metrics of %s: %w", c.base, err)
			}
			received += seen["countmill_messages_received_total"]
			held += seen["countmill_held_messages"]
		}
		if held > 0 || received != before {
			last, before = time.Now(), received
		}
		if time.Since(last) > quietFor || time.Now().After(deadline) {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-tick.C:
		}
	}
}
