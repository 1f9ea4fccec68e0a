package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
)

// read asks a reader for totals.
func (w *World) read() {
	lives := w.procs.lives(reading)
	if len(lives) == 0 {
		return
	}
	p, staleness := pick(w.rng, lives), w.staleness()
	first := w.readFrom(p, staleness)
	if first.kind == "read" && w.rng.IntN(2) == 0 { // the same again: it may share the first
		again := w.newOp("read")
		again.staleness, again.names, again.doubt = staleness, first.names, p.doubt
		w.totals(again, p)
	}
}

// staleness is what a reader is to accept, often the same: then reads are shared.
func (w *World) staleness() time.Duration {
	if w.rng.IntN(2) == 0 {
		return w.shape.staleness
	}
	return drawStaleness(w.rng)
}

func drawStaleness(r *rand.Rand) time.Duration {
	return []time.Duration{0, 0, 100 * time.Millisecond, time.Second, 5 * time.Second, -1}[r.IntN(6)]
}

func (w *World) readFrom(p *proc, staleness time.Duration) *op {
	o := w.newOp("read")
	o.final, o.staleness, o.doubt = w.stage >= folding, staleness, p.doubt
	for _, c := range counters {
		if w.rng.IntN(2) == 0 {
			o.names = append(o.names, c)
		}
	}
	if len(o.names) == 0 || w.rng.IntN(3) == 0 {
		o.names = []string{"a"} // what many want at the same time
	}
	if w.crowd != nil && (o.final || w.rng.IntN(3) == 0) {
		o.names = []string{w.crowd.counter}
	}
	if w.rng.IntN(8) == 0 {
		o.kind = "list"
		w.ask(o, p, func(ctx context.Context) error {
			o.from = w.wall().Truncate(time.Microsecond)
			page, err := p.rdr.List(ctx, "page:", "", 10)
			o.totals = page.Totals
			return err
		})
		return o
	}
	w.totals(o, p)
	return o
}

// probe asks a reader whether it is ready, as whoever runs it does all the time, and then for
// totals that its cache may have.
func (w *World) probe(p *proc) {
	w.ask(w.newOp("ready"), p, func(ctx context.Context) error {
		_, err := p.rdr.Ready(ctx)
		return err
	})
}

func (w *World) finishProbe(o *op) {
	if o.p.dead || !w.stormy {
		return
	}
	next := w.newOp("read")
	next.names, next.staleness, next.doubt = counters[:1], 5*time.Second, o.p.doubt
	w.totals(next, o.p)
}

// totals asks for totals.
func (w *World) totals(o *op, p *proc) {
	w.ask(o, p, func(ctx context.Context) (err error) {
		o.from = w.wall().Truncate(time.Microsecond)
		o.totals, err = p.rdr.Totals(ctx, o.names, o.staleness)
		return err
	})
}

// slack is how far a reader may be wrong about the store's clock: what its calls took.
const slack = 2 * time.Second

// finishRead: no total that never was, and none older than was asked for.
func (w *World) finishRead(o *op) {
	if o.p.dead {
		return
	}
	if o.err != nil {
		w.checkNoTotal(o)
		return
	}
	w.Reads++
	staleness := o.staleness
	if staleness < 0 {
		staleness = 2 * time.Second
	}
	for _, t := range o.totals {
		if w.crowd.is(t.Counter) {
			w.checkCrowdTotal(o, t.Total)
			continue
		}
		was, exists := w.db.fake.ServedAt(t.Counter, t.AsOf)
		if was != t.Total || exists != t.Exists {
			w.violate("%s read %d of %s as of %s (exists: %t), when it was %d (%t)", o.p.name, t.Total, t.Counter, t.AsOf.Format(clockFormat), t.Exists, was, exists)
		}
		if !increments(t.Counter, t.Total) {
			w.violate("%s read %d of %s, which is no sum of its increments", o.p.name, t.Total, t.Counter)
		}
		oldest, shown := o.from.Add(-staleness), w.showed(t.AsOf)
		if t.Source == reader.SourceCache { // the age of what it reads itself needs no clock
			oldest = oldest.Add(-slack - o.doubt)
			if !o.p.learned {
				w.violate("%s served %s from the cache and has never learned the store's time", o.p.name, t.Counter)
			}
		}
		if w.jumped == o.jumped && shown.Before(oldest) {
			w.violate("%s read %s as of %s, %s before %s it was asked to accept at most", o.p.name, t.Counter,
				shown.Format(clockFormat), oldest.Sub(shown), oldest.Format(clockFormat))
		}
	}
	if w.db.swapped && !o.p.told.IsZero() && o.from.After(o.p.told.Add(w.jumped)) && o.kind == "read" {
		w.violate("%s read totals of another database after it was told", o.p.name)
	}
}

const clockFormat = "02 15:04:05.000000"

// checkNoTotal: an error is not to say that a counter overflows which does not.
func (w *World) checkNoTotal(o *op) {
	if !errors.Is(o.err, countmill.ErrOverflow) {
		return
	}
	for _, name := range o.names {
		if w.crowd.overflows(name) {
			return
		}
	}
	w.violate("%s says that one of %q overflows", o.p.name, o.names)
}
