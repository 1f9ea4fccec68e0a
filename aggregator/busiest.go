package aggregator

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// busiestKept is the number of counters that busiest remembers. A counter with more than two parts
// in busiestKept of all recent movement is always among them.
const busiestKept = 1000

// busiestHalf is the time after which movement counts half.
const busiestHalf = 10 * time.Second

// A busiest finds the counters that move most. It is a Misra-Gries summary, merged with the exact
// sums of each commit: of all weights, the busiestKept largest stay, less the largest weight that
// does not (Agarwal, Cormode, Huang, Phillips, Wei, Yi: Mergeable Summaries, PODS 2012). Of a commit
// with more counters only the busiestKept largest are added. So a weight is never too high. It is
// too low by at most two parts in busiestKept of all weights: one for the merges, and one for the
// commits in which the counter was not among the largest.
//
// The zero busiest is ready. Commits call note concurrently.
type busiest struct {
	mu      sync.Mutex
	weights map[string]float64
}

// note adds the movement of a commit. It reads all adds once, and remembers the largest ones.
func (b *busiest) note(adds []store.ShardDelta) {
	floor := floorOf(adds)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.weights == nil {
		b.weights = make(map[string]float64)
	}
	for i := range adds {
		if w := weight(&adds[i]); w > floor && !countmill.IsGroup(adds[i].Counter) {
			b.weights[strings.Clone(adds[i].Counter)] += w // the name is cut from a message, and would keep all of it in memory
		}
	}
	b.cutLocked()
}

func weight(d *store.ShardDelta) float64 {
	return math.Abs(float64(d.Upper)*(1<<64) + float64(d.Delta))
}

// floorOf is the largest movement of the adds beside the busiestKept largest; 0 if there are no
// more. It keeps the largest ones so far, at most twice as many as it needs.
func floorOf(adds []store.ShardDelta) float64 {
	const need = busiestKept + 1
	if len(adds) < need {
		return 0
	}
	top, floor := make([]float64, 0, 2*need), -1.0
	for i := range adds {
		w := weight(&adds[i])
		if w <= floor {
			continue
		}
		if top = append(top, w); len(top) == cap(top) {
			slices.Sort(top)
			top = append(top[:0], top[need:]...)
			floor = top[0]
		}
	}
	slices.Sort(top)
	return top[len(top)-need]
}

// cutLocked makes at most busiestKept counters of up to twice as many.
func (b *busiest) cutLocked() {
	if len(b.weights) <= busiestKept {
		return
	}
	all := make([]float64, 0, len(b.weights))
	for _, w := range b.weights {
		all = append(all, w)
	}
	slices.Sort(all)
	floor := all[len(all)-1-busiestKept]
	for counter, w := range b.weights {
		if w <= floor {
			delete(b.weights, counter)
		} else {
			b.weights[counter] = w - floor
		}
	}
}

// take returns the busiest counters, and lets their weights fade. It is called at every heartbeat,
// every so often. With a steady movement r, and a fraction f left after each call, the weights
// before a call add up to r*every/(1-f).
func (b *busiest) take(every time.Duration) []store.Busy {
	left := math.Exp2(-every.Seconds() / busiestHalf.Seconds())
	toRate := (1 - left) / every.Seconds()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]store.Busy, 0, len(b.weights))
	for counter, w := range b.weights {
		all = append(all, store.Busy{Counter: counter, Rate: w * toRate})
		if w *= left; w*toRate < quiet {
			delete(b.weights, counter)
		} else {
			b.weights[counter] = w
		}
	}
	slices.SortFunc(all, func(a, b store.Busy) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Counter, b.Counter))
	})
	return slices.Clone(all[:min(len(all), store.MaxBusiest)])
}

// quiet is the movement in a second below which a counter is forgotten: a single increment is for
// half a minute.
const quiet = 0.01
