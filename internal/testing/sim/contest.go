package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A contest is one caller's flood and another caller's request right behind it, while nothing breaks and
// everything else has come to rest. The request has to be counted soon.
type contest struct {
	flood string
	n     int
	stage race
	op    *op // the request
	began time.Time
}

// A race is how far a contest is.
type race int

const (
	resting race = iota
	readying
	flooding
	running
	over
)

// flooded is the counter that a flood is of.
const flooded = "flooded"

// The floods.
const (
	reusedIDs  = "reused ids"
	unreadable = "unreadable messages"
	bulk       = "increments under one key, in two messages"
)

// drawContest draws a contest for few schedules, and what its processes have room for.
func (pl *plan) drawContest() *contest {
	rng := rand.New(rand.NewPCG(pl.seed, 0x666c6f6f64))
	if rng.IntN(30) > 0 || pl.crowd != nil {
		return nil
	}
	c := &contest{flood: reusedIDs, n: 800}
	switch n := rng.IntN(6); {
	case n < 3 && !pl.embedded:
		c.flood, c.n = unreadable, 300
	case n == 3:
		c.flood, c.n = bulk, wire.MaxBatch/countmill.MaxCounterName+100
	}
	s := &pl.shape
	s.maxEntries, s.maxBytes, s.inFlight, s.letterRate, s.budget = 10_000, 32<<20, max(s.inFlight, 2), 100, -1
	return c
}

// contestWithin is how long the request may take: the lingers, the letters of unreadable messages at the rate that
// is allowed, and a second for all the rest.
func (w *World) contestWithin() time.Duration {
	within := max(w.shape.linger, 0) + max(w.shape.window, 0) + 2*time.Second
	if w.contest.flood == unreadable {
		within += time.Second * time.Duration(w.contest.n) / time.Duration(w.shape.letterRate)
	}
	return within
}

// racing reports whether a contest is under way: then time passes only when nothing else can be done.
func (w *World) racing() bool {
	return w.contest != nil && (w.contest.stage == flooding || w.contest.stage == running)
}

// compete goes on with the contest, and reports whether it is over.
func (w *World) compete() bool {
	c := w.contest
	// Where the store's clock was set back its commits are ahead of its checks: after each an aggregator takes its
	// settings for old, and waits for the next check.
	if c == nil || c.stage == over || len(w.steps) > 1 {
		return true
	}
	switch c.stage {
	case resting, readying:
		if !w.ready() || len(w.asked)+len(w.again)+len(w.bus.queue)+len(w.bus.held)+len(w.ghosts) > 0 || w.db.lettersWait() {
			return false
		}
		if c.stage++; c.flood == reusedIDs && c.stage == readying {
			w.sendMany(1)
			return false
		}
		w.startFlood()
	case flooding: // until the bus has it; on one machine the answer comes when it has been dealt with
		if len(w.asked) == 0 || w.embedded {
			w.race()
		}
	case running:
		w.checkRace()
	}
	return false
}

// ready reports whether all aggregators are, and starts those again that have stopped for good.
func (w *World) ready() bool {
	lives := w.procs.lives(aggregating)
	for _, p := range lives {
		if p.halted() {
			w.procs.kill(p)
			return false
		}
		if p.unready() != "" {
			return false
		}
	}
	return len(lives) == w.procs.count(aggregating)+w.procs.count(node) && len(w.procs.publishers()) > 0
}

// sendMany sends increments under the ids of the flood, or under its key.
func (w *World) sendMany(delta int64) {
	c := w.contest
	o := w.newOp("ids")
	o.limit, o.repeats = time.Minute, 0
	for i := range c.n {
		inc := countmill.Increment{Counter: flooded, Delta: delta, ID: fmt.Sprint("flood", i)}
		if c.flood == bulk {
			inc.Counter = fmt.Sprintf("%s%0*d", flooded, countmill.MaxCounterName-len(flooded), i)
		}
		o.incs = append(o.incs, inc)
	}
	if c.flood == bulk {
		o.kind, o.key = "key", "flood"
	}
	w.send(o, pick(w.rng, w.procs.publishers()))
}

// startFlood sends the flood.
func (w *World) startFlood() {
	c := w.contest
	c.stage = flooding
	w.say(nil, "a flood of %d %s", c.n, c.flood)
	if c.flood == unreadable {
		for i := range c.n {
			payload := fmt.Sprint("\xffflood ", i)
			w.oracles.ledger.garbage = append(w.oracles.ledger.garbage, payload)
			w.bus.put("", []byte(payload), true)
		}
		return
	}
	w.sendMany(map[string]int64{reusedIDs: 2, bulk: 1}[c.flood])
}

// race sends the request behind the flood.
func (w *World) race() {
	c := w.contest
	c.op = w.newOp("ids")
	c.op.limit, c.op.repeats = time.Minute, 0
	if s := w.oracles.ledger.draw(pick(w.rng, counters)); s != nil {
		c.op.sums = append(c.op.sums, s)
		c.op.incs = append(c.op.incs, countmill.Increment{Counter: s.counter, Delta: s.delta(), ID: "behind the flood"})
		w.send(c.op, pick(w.rng, w.procs.publishers()))
		c.stage, c.began = running, time.Now()
		return
	}
	c.stage = over
}

// checkRace: the request is counted in time.
func (w *World) checkRace() {
	c := w.contest
	took, s := time.Since(c.began), c.op.sums[0]
	switch {
	case s.times(w.oracles.totals.folded[s.counter]) > 0:
		w.say(nil, "the request behind the flood was counted after %s", took)
		w.Shapes[map[string]Shape{reusedIDs: BehindReusedIDs, unreadable: BehindUnreadable, bulk: BehindBulk}[c.flood]]++
		c.stage = over
	case s.setAside(letterSums(w.db.fake.Letters())): // a window or a clock that has changed: as good as counted, for a flood
		c.stage = over
	case took > w.contestWithin():
		w.violate("a request behind %d %s was not counted within %s", c.n, c.flood, w.contestWithin())
		c.stage = over
	}
}
