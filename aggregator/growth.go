package aggregator

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// growth gives counters more shards, beside the loop, in one call at a time. No fold waits for
// it: a fold uses the number of shards in the last known record. So the new shards are used only
// after the record that names them is durable.
//
// A request that is dropped does no harm: the next commits to the same counter ask again.
type growth struct {
	wants   map[string]int // the number of shards that a counter needs
	asked   map[string]int // the same, in the call under way
	cancel  context.CancelFunc
	answers chan grown
	fails   int
	after   time.Time
}

// mostWants is the most counters that may wait.
const mostWants = 1000

func newGrowth() growth {
	return growth{wants: make(map[string]int), answers: make(chan grown, 1)}
}

// A grown is the result of a call.
type grown struct {
	learned
	err error
}

// want notes counters that need more shards.
func (g *growth) want(growths []store.Growth) {
	for _, r := range growths {
		if n, waits := g.wants[r.Counter]; r.Shards > max(n, g.asked[r.Counter]) && (waits || len(g.wants) < mostWants) {
			g.wants[strings.Clone(r.Counter)] = r.Shards // the name is cut from a message, and would keep all of it in memory
		}
	}
}

// grow starts a call for the counters that need more shards, unless one is under way.
func (l *loop) grow(now time.Time) {
	g := &l.growth
	if g.asked != nil || len(g.wants) == 0 || now.Before(g.after) || l.draining || l.isAway() {
		return
	}
	var growths []store.Growth
	for _, counter := range slices.Sorted(maps.Keys(g.wants)) {
		if n := g.wants[counter]; n > l.a.records.known(counter) && len(growths) < l.a.limits.Keys {
			growths = append(growths, store.Growth{Counter: counter, Shards: n})
		}
	}
	wants := g.wants
	if g.wants = make(map[string]int); len(growths) == 0 {
		return // the records have these shards already
	}
	g.asked = wants
	var ctx context.Context
	ctx, g.cancel = l.a.callContext()
	l.a.cfg.env.Go(func() {
		cost, err := l.a.records.grow(ctx, growths)
		g.answers <- grown{cost, err}
	})
}

// afterGrowth notes the result of a call. After an error its counters are asked for again later.
func (l *loop) afterGrowth(got grown) {
	g, s := &l.growth, &l.a.stats
	g.cancel()
	s.read.Add(int64(got.read))
	s.written.Add(int64(got.raised))
	s.recordsWritten.Add(int64(got.raised))
	s.grown.Add(int64(got.raised))
	asked := g.asked
	g.asked = nil
	if got.err == nil {
		g.fails, g.after = 0, time.Time{}
		return
	}
	g.fails++
	g.after = time.Now().Add(l.backoff(g.fails))
	for _, counter := range slices.Sorted(maps.Keys(asked)) {
		g.want([]store.Growth{{Counter: counter, Shards: asked[counter]}})
	}
	l.a.cfg.Logger.Warn("counters not grown, will try again", "err", got.err, "counters", len(asked))
}

// end abandons the call under way: either result is harmless.
func (g *growth) end() {
	if g.asked != nil {
		g.cancel()
		<-g.answers
		g.asked = nil
	}
}

// known is the remembered number of shards of a counter, or 0.
func (r *records) known(counter string) int {
	hash := wire.HashCounter(counter)
	r.mu.Lock()
	defer r.mu.Unlock()
	newer, _ := r.newer.get(hash, counter)
	older, _ := r.older.get(hash, counter)
	return cmp.Or(newer, older)
}

// grow makes records name more shards, and remembers the records that have as many already:
// another aggregator may have been first. It leaves a deleted counter as it is. A counter that is
// deleted between the two calls exists again, at 0.
func (r *records) grow(ctx context.Context, growths []store.Growth) (cost learned, err error) {
	names := make([]string, len(growths))
	for i := range growths {
		names[i] = growths[i].Counter
	}
	asked := r.aging.age()
	r.mu.Lock()
	forgotten := r.forgotten
	r.mu.Unlock()
	found, err := r.store.Shards(ctx, names)
	if cost.read = len(names); err != nil {
		return cost, err
	}
	var missing, there []store.Growth
	for i, want := range growths {
		switch n := found[i]; {
		// A deleted counter has no shards until it is incremented again.
		case n == 0:
		case n < want.Shards:
			missing = append(missing, want)
		default:
			there = append(there, store.Growth{Counter: want.Counter, Shards: n})
		}
	}
	r.remember(there, asked, forgotten)
	if len(missing) == 0 {
		return cost, nil
	}
	// A failed growth is not remembered: readers ignore a shard that no record names.
	if err := r.store.Grow(ctx, missing); err != nil {
		return cost, err
	}
	cost.raised = len(missing)
	r.remember(missing, asked, forgotten)
	return cost, nil
}
