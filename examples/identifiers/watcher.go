package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill"
)

// A watcher reads a few totals over and over while increments are sent, from the cache if they are
// recent enough. None may ever be larger than the final sum, however often processes are killed and restarted
// meanwhile.
type watcher struct {
	reader         *remote // which asks once
	counters       []string
	most           []int64 // of each counter
	reads, refused int64
}

// newWatcher watches the most frequent names.
func newWatcher(c *remote, prefix string, want map[string]int64) *watcher {
	names := slices.SortedFunc(maps.Keys(want), func(a, b string) int {
		return cmp.Or(cmp.Compare(want[b], want[a]), cmp.Compare(a, b))
	})
	w := &watcher{reader: c}
	for _, name := range names[:min(20, len(names))] {
		w.counters, w.most = append(w.counters, prefix+name), append(w.most, want[name])
	}
	return w
}

// run reads until ctx ends.
func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.read(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("read on the way: %w", err)
		}
	}
}

func (w *watcher) read(ctx context.Context) error {
	totals, err := w.reader.Totals(ctx, w.counters)
	w.reads++
	if errors.Is(err, countmill.ErrUnavailable) || errors.Is(err, countmill.ErrOverloaded) {
		w.refused++
		return nil
	}
	for i, t := range totals {
		if t.Total > w.most[i] {
			return fmt.Errorf("%s: countmill has %d, but the final sum is %d", t.Counter, t.Total, w.most[i])
		}
	}
	return err
}
