package sim

import (
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A contest is one caller's flood and another caller's request right behind it, while nothing breaks and
// everything else has come to rest. The request has to be counted soon.
type contest struct {
	flood string
	n     int // increments, or messages
}

// A race runs the contest of a schedule.
type race struct {
	*World

	stage raceStage
	op    *op // the request
	began time.Time
}

// A raceStage is how far a race is.
type raceStage int

const (
	resting raceStage = iota
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
	rng := pl.rng
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
	s.maxEntries, s.maxBytes, s.inFlight, s.deadLetterRate, s.budget = 10_000, 32<<20, max(s.inFlight, 2), 100, -1
	return c
}

// within is how long the request may take: the lingers, the letters of unreadable messages at the rate that
// is allowed, and a second for all the rest.
func (rn *race) within() time.Duration {
	within := max(rn.shape.linger, 0) + max(rn.shape.window, 0) + 2*time.Second
	if rn.contest.flood == unreadable {
		within += time.Second * time.Duration(rn.contest.n) / time.Duration(rn.shape.deadLetterRate)
	}
	return within
}

// racing reports whether a contest is under way: then time passes only when nothing else can be done.
func (rn *race) racing() bool {
	return rn.contest != nil && (rn.stage == flooding || rn.stage == running)
}

// compete goes on with the contest, and reports whether it is over.
func (rn *race) compete() bool {
	c := rn.contest
	// Where the store's clock was set back its commits are ahead of its checks: after each an aggregator takes its
	// settings for old, and waits for the next check.
	if c == nil || rn.stage == over || len(rn.steps) > 1 {
		return true
	}
	switch rn.stage {
	case resting, readying:
		if !rn.ready() || len(rn.clients.asked)+len(rn.clients.again)+len(rn.bus.queue)+len(rn.bus.held)+len(rn.delayed) > 0 || rn.db.deadLettersWait() {
			return false
		}
		if rn.stage++; c.flood == reusedIDs && rn.stage == readying {
			rn.sendMany(1)
			return false
		}
		rn.startFlood()
	case flooding: // until the bus has it; on one machine the answer comes when it has been dealt with
		if len(rn.clients.asked) == 0 || rn.embedded {
			rn.sendRequest()
		}
	case running:
		rn.checkRace()
	}
	return false
}

// ready reports whether all aggregators are, and starts those again that have stopped for good.
func (rn *race) ready() bool {
	lives := rn.procs.lives(aggregating)
	for _, p := range lives {
		if p.halted() {
			rn.procs.kill(p)
			return false
		}
		if p.unready() != "" {
			return false
		}
	}
	return len(lives) == rn.procs.count(aggregating)+rn.procs.count(node) && len(rn.procs.publishers()) > 0
}

// sendMany sends increments under the ids of the flood, or under its key.
func (rn *race) sendMany(delta int64) {
	c := rn.contest
	o := rn.clients.newOp("ids", rn.clients.finishSend)
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
	rn.clients.send(o, pick(rn.rng, rn.procs.publishers()))
}

// startFlood sends the flood.
func (rn *race) startFlood() {
	c := rn.contest
	rn.stage = flooding
	rn.say(nil, "a flood of %d %s", c.n, c.flood)
	if c.flood == unreadable {
		for i := range c.n {
			payload := fmt.Sprint("\xffflood ", i)
			rn.ledger.garbage = append(rn.ledger.garbage, payload)
			rn.bus.put("", []byte(payload), true)
		}
		return
	}
	rn.sendMany(map[string]int64{reusedIDs: 2, bulk: 1}[c.flood])
}

// sendRequest sends the request behind the flood.
func (rn *race) sendRequest() {
	rn.op = rn.clients.newOp("ids", rn.clients.finishSend)
	rn.op.limit, rn.op.repeats = time.Minute, 0
	if s := rn.ledger.draw(pick(rn.rng, counters)); s != nil {
		rn.op.sums = append(rn.op.sums, s)
		rn.op.incs = append(rn.op.incs, countmill.Increment{Counter: s.counter, Delta: s.delta(), ID: "behind the flood"})
		rn.clients.send(rn.op, pick(rn.rng, rn.procs.publishers()))
		rn.stage, rn.began = running, time.Now()
		return
	}
	rn.stage = over
}

// checkRace: the request is counted in time.
func (rn *race) checkRace() {
	c := rn.contest
	took, s := time.Since(rn.began), rn.op.sums[0]
	switch {
	case s.times(rn.totals.folded[s.counter]) > 0:
		rn.say(nil, "the request behind the flood was counted after %s", took)
		rn.Raced++
		rn.stage = over
	case took > rn.within() && s.deadLettered(deadLetterSums(rn.db.deadLetters())): // a window or a clock has changed
		rn.stage = over
	case took > rn.within():
		rn.violate("a request behind %d %s was not counted within %s", c.n, c.flood, rn.within())
		rn.stage = over
	}
}
