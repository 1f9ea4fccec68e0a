package cost

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/store"
)

// seriesMost is how many times the entities a rule for all counters may cost.
const seriesMost = 1.10

// A rule for all counters writes no further entities in folds, and moves of full rings write few. The
// runs are longer than the minutes of a ring, so that the busiest counters are moved.
func TestSeries(t *testing.T) {
	const hour = 1_000_000.0 / 3600
	type rated struct {
		label string
		rate  float64 // increments a second
		names int
	}
	const lasts = 66 * time.Minute
	for _, c := range []rated{{"one hot counter", choose(100*hour, 20), 1}, {"Zipf", choose(hour, 20), choose(1_000_000, 1000)}} {
		var all [2]figures
		for ruled := range all {
			synctest.Test(t, func(t *testing.T) {
				names := load.Names(c.names)
				draw := locked(load.Zipf(rand.New(rand.NewPCG(1, 2)), max(c.names, 2)))
				p := open(t, setup{publishers: choose(25, 2), aggregators: 1, series: ruled == 1})
				end := p.tend()
				p.drip(int(c.rate), lasts, 100*time.Millisecond, func(i, n int) {
					for range n {
						p.add(p.pubs[i], names[int(draw())%len(names)])
					}
				})
				p.rest()
				end()
				all[ruled] = p.close()
				keep("series: a rule for all counters, "+c.label, fmt.Sprintf("rule: %t", ruled == 1), float64(ruled), 0, all[ruled])
			})
		}
		without, with := all[0], all[1]
		t.Logf("%s: %.0f entities per million without a rule, %.0f with one, %.0f of them by %d moves: %.3f times", c.label,
			without.perMillion(without.written()), with.perMillion(with.written()), with.perMillion(with.Moved), with.Moves,
			with.perMillion(with.written())/without.perMillion(without.written()))
		if got := with.perMillion(with.written()) / without.perMillion(without.written()); got > seriesMost || with.Moves == 0 {
			t.Errorf("%s: a rule for all counters costs %.2f times the entities, with %d moves; want at most %.2f times", c.label, got, with.Moves, seriesMost)
		}
	}
}

// seriesRule is a rule for all counters.
var seriesRule = store.RuleChange{Pattern: "*", Keep: store.Retention{Minutes: 24 * time.Hour, Quarters: 400 * 24 * time.Hour}}

// tend moves series, as a deployment does, until end is called. It moves every
// minute and not every store.MoveEvery, because the store in memory looks at all rings each time.
func (p *pipeline) tend() (end func()) {
	ctx, stop := context.WithCancel(p.t.Context())
	var tending sync.WaitGroup
	tending.Go(func() {
		tick := time.NewTicker(time.Minute)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if _, err := p.store.MoveSeries(ctx); err != nil && ctx.Err() == nil {
					p.t.Error(err)
				}
			}
		}
	})
	return func() {
		stop()
		tending.Wait()
	}
}
