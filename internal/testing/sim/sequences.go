package sim

import (
	"context"
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
