package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/sequence"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// drawSequences draws the schedules whose clients ask for values of sequences.
func (pl *plan) drawSequences() {
	rng := pl.rng
	if rng.IntN(8) > 0 || pl.crowd != nil || pl.contest != nil {
		return
	}
	pl.sequences = 1 + rng.IntN(3)
	pl.shape.works += 12
	if rng.IntN(2) == 0 { // ids are forgotten while calls are under way
		pl.rates[PastWindow], pl.rates[AnswerWaits] = 0.3, 0.3
	}
	rate := []float64{0, 0.1, 0.3}[rng.IntN(3)]
	if pl.embedded {
		rate = 0
	}
	pl.set(rate, takes.all()...)
}

// startIssuer starts what gives values, in a process that reads.
func (ps *processes) startIssuer(p *proc, e *clock.Env) {
	p.seq = must(sequence.New(ps.db.storeOf(p, nil), clock.With(sequence.Config{
		// Longer than clients wait. Ends of waiting of its own: no two fall on the same instant.
		Timeout:     2*time.Minute + time.Duration(p.n)*1031,
		CallTimeout: ps.shape.timeout + time.Duration(p.n)*43 + 61*time.Microsecond, Transactions: 1 + p.slot,
	}, e)))
}

// Sequence clients ask for values of sequences.
type sequenceClients struct {
	*callers

	requests []*valueRequest
	tries    int // since nothing breaks any more
}

// A valueRequest is a request for values, until it has them.
type valueRequest struct {
	countmill.NextRequest
	n       int
	jumped  time.Duration // kernel.jumped at the first try
	floor   int64         // the greatest value of the sequence in an answer before the first try
	unknown bool          // a try had an unknown outcome
	late    bool          // it was refused for its time
	first   int64         // the answer; 0 for none
}

// next asks for values, or for the same values again.
func (sc *sequenceClients) next() {
	lives := sc.procs.lives(reading)
	if len(lives) == 0 {
		return
	}
	if sc.rng.IntN(8) == 0 {
		sc.askState(pick(sc.rng, lives))
		return
	}
	var r *valueRequest
	if again := sc.repeatable(); len(again) > 0 && sc.rng.IntN(2) == 0 {
		r = pick(sc.rng, again)
	} else {
		r = sc.newRequest()
	}
	sc.askValues(r, pick(sc.rng, lives))
}

func (sc *sequenceClients) newRequest() *valueRequest {
	r := &valueRequest{n: len(sc.requests), jumped: sc.jumped}
	r.Sequence = fmt.Sprint("row", sc.rng.IntN(sc.sequences))
	r.Count = 1 + sc.rng.IntN(3)
	if sc.rng.IntN(4) > 0 {
		r.ID = fmt.Sprint("v", r.n)
		if sc.rng.IntN(2) == 0 {
			r.Time = sc.wall()
		}
	}
	r.floor = sc.values.greatest[r.Sequence]
	sc.requests = append(sc.requests, r)
	if r.ID != "" {
		sc.values.named[wire.SequenceID(r.Sequence, r.ID)] = r
	}
	return r
}

// repeatable returns the requests that may be repeated: within the window, or with the time of the first try.
func (sc *sequenceClients) repeatable() (found []*valueRequest) {
	for _, r := range sc.requests {
		if r.ID != "" && !r.late && (!r.Time.IsZero() || r.jumped == sc.jumped) {
			found = append(found, r)
		}
	}
	return found
}

func (sc *sequenceClients) askValues(r *valueRequest, p *proc) {
	var got countmill.Values
	o := sc.newOp("values", func(o *op) { sc.values.answered(r, o, got) })
	sc.say(p, "op %d: %d values of %s, id %q, time %s", o.n, r.Count, r.Sequence, r.ID, r.Time.Format(clockFormat))
	sc.ask(o, p, func(ctx context.Context) (err error) {
		if r.Time.IsZero() && r.jumped != sc.jumpedNow() {
			return countmill.ErrUnavailable // it never called
		}
		got, err = p.seq.Next(ctx, r.NextRequest)
		return err
	})
}

// askState asks for the last value of a sequence, and may delete it: its next value is greater all the same.
func (sc *sequenceClients) askState(p *proc) {
	name, deletes := fmt.Sprint("row", sc.rng.IntN(sc.sequences)), sc.rng.IntN(2) == 0
	floor := sc.values.greatest[name]
	var got store.SequenceState
	o := sc.newOp("state", func(o *op) {
		if !o.p.dead && o.err == nil && got.Last < floor {
			sc.violate("the last value of %s is %d, and %d was answered before", name, got.Last, floor)
		}
	})
	sc.ask(o, p, func(ctx context.Context) (err error) {
		if deletes {
			got, err = p.seq.Delete(ctx, name)
		} else {
			got, err = p.seq.State(ctx, name)
		}
		return err
	})
}

func (sc *sequenceClients) jumpedNow() time.Duration {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.jumped
}

// nextLast repeats requests with unknown outcomes until they have their values, and reports whether all have.
func (sc *sequenceClients) nextLast() bool {
	if len(sc.asked) > 0 {
		return false
	}
	lives := sc.procs.lives(reading)
	for _, r := range sc.repeatable() {
		if !r.unknown || r.first > 0 || len(lives) == 0 {
			continue
		}
		if sc.tries++; sc.tries > 10*mostTries {
			sc.violate("%d values of %s with the id %s cannot be had", r.Count, r.Sequence, r.ID)
			return true
		}
		sc.askValues(r, pick(sc.rng, lives))
		return false
	}
	sc.values.check(sc.requests)
	return true
}

// A valueOracle checks that each value of a sequence is given once.
type valueOracle struct {
	*World
	greatest map[string]int64                   // the greatest value of each sequence that an answer had
	given    map[wire.PartID]store.Given        // values of the store, by the id of the marker
	owners   map[string]map[int64]*valueRequest // by sequence and value: whose answer had it
	named    map[wire.PartID]*valueRequest      // those with an id
}

func newValueOracle(w *World) *valueOracle {
	return &valueOracle{w, make(map[string]int64), make(map[wire.PartID]store.Given), make(map[string]map[int64]*valueRequest), make(map[wire.PartID]*valueRequest)}
}

// excused reports whether a request may get other values than before: it has no time, and its id may be
// forgotten by now.
func (v *valueOracle) excused(r *valueRequest) bool {
	return r != nil && r.Time.IsZero() && r.jumped != v.jumped
}

// gave sees values that the store gives for the first time.
func (v *valueOracle) gave(name string, id wire.PartID, g store.Given) {
	if before, ok := v.given[id]; ok && !v.excused(v.named[id]) {
		v.violate("the id %s got %d values from %d of %s, and then %d from %d", short(id), before.Count, before.First, name, g.Count, g.First)
	}
	v.given[id] = g
}

// answered takes an answer in: the values of a request are the same each time, nobody else's, and greater than
// all that were answered before the request.
func (v *valueOracle) answered(r *valueRequest, o *op, got countmill.Values) {
	switch {
	case o.p.dead || errors.Is(o.err, countmill.ErrOutcomeUnknown):
		r.unknown = true
		return
	case o.err != nil:
		r.late = r.late || errors.Is(o.err, countmill.ErrIDExpired)
		return
	}
	v.Values++
	v.say(o.p, "op %d gets the values %d to %d of %s", o.n, got.First, got.Last, r.Sequence)
	if int(got.Last-got.First)+1 != r.Count {
		v.violate("request %d for %d values of %s got %d to %d", r.n, r.Count, r.Sequence, got.First, got.Last)
	}
	if r.first > 0 && r.first != got.First && !v.excused(r) {
		v.violate("the id %s got the values from %d of %s, and then from %d", r.ID, r.first, r.Sequence, got.First)
	}
	if got.First <= r.floor {
		v.violate("a request got the value %d of %s, and %d was answered before it began", got.First, r.Sequence, r.floor)
	}
	if r.first == 0 {
		r.first = got.First
	}
	if v.owners[r.Sequence] == nil {
		v.owners[r.Sequence] = make(map[int64]*valueRequest)
	}
	for n := got.First; n <= got.Last; n++ {
		if other := v.owners[r.Sequence][n]; other != nil && other != r {
			v.violate("the value %d of %s was given to requests %d and %d", n, r.Sequence, other.n, r.n)
		}
		v.owners[r.Sequence][n] = r
	}
	v.greatest[r.Sequence] = max(v.greatest[r.Sequence], got.Last)
}

// check: all values of the store have an owner, or a request whose outcome is unknown. A request whose answer was that it has
// none has none.
func (v *valueOracle) check(requests []*valueRequest) {
	left := make(map[wire.PartID]store.Given)
	for id, g := range v.given {
		left[id] = g
	}
	unknown, unnamed := 0, make(map[int64]int)
	for _, r := range requests {
		if r.ID == "" {
			if r.first > 0 {
				unnamed[r.first]++
			} else if r.unknown {
				unknown++
			}
			continue
		}
		id := wire.SequenceID(r.Sequence, r.ID)
		g, ok := v.given[id]
		delete(left, id)
		switch {
		case v.excused(r):
		case r.first > 0 && g.First != r.first:
			v.violate("the id %s of %s got the value %d, and the store gave it %d", r.ID, r.Sequence, r.first, g.First)
		case ok && r.first == 0 && !r.unknown:
			v.violate("the id %s of %s got no values, and the store gave it %d", r.ID, r.Sequence, g.First)
		}
	}
	lost := 0
	for _, g := range left {
		if unnamed[g.First]--; unnamed[g.First] < 0 {
			lost++
		}
	}
	if lost > unknown {
		v.violate("%d values were given to nobody, and the outcomes of %d requests without an id are unknown", lost, unknown)
	}
}
