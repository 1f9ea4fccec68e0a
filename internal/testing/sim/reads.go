package sim

import (
	"context"
	"math/rand/v2"
	"time"
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
