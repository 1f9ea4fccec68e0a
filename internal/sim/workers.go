package sim

import (
	"context"
	"maps"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/reader"
)

// A said is an aggregator's record in the store.
type said struct {
	aggregator.Worker
	at   time.Time     // by clocks that are right
	off  time.Duration // how far the aggregator may have been wrong about the store's time
	sure bool          // off is known, and this is not its last word
}

// A guess is how far a process may be wrong about the store's time that checks of the database
// give it, if no clock was set.
type guess struct {
	off   time.Duration
	known bool
}

// learns notes that a check has answered that began then. The first one teaches nothing if it took
// over a minute.
func (g *guess) learns(took time.Duration) {
	switch {
	case g.known:
		g.off = min(g.off, took)
	case took <= time.Minute:
		g.off, g.known = took, true
	}
}

// says is the record that p is about to write.
func (p *proc) says(worker aggregator.Worker) said {
	at := p.w.wall()
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return said{Worker: worker, at: at, off: p.guess.off, sure: p.guess.known && !p.leaving && p.set.IsZero()}
}

// askPipeline asks a reader how far behind the aggregators are.
func (w *World) askPipeline() {
	lives := w.lives(reading)
	if len(lives) == 0 {
		return
	}
	p := pick(w, lives)
	o := w.newOp("pipeline")
	w.ask(o, p, func(ctx context.Context) error {
		o.pipeline = p.rdr.Pipeline(ctx)
		at := w.wall()
		w.mu.Lock()
		defer w.mu.Unlock()
		o.from, o.knew, o.guess = at, maps.Clone(p.knows), p.guess
		return nil
	})
}

// checkPipeline: a reader counts each aggregator whose last record, as far as it has read them, is younger than three
// rounds, whatever the clocks of both show, and its lag is the largest one of those records.
func (w *World) checkPipeline(o *op) {
	if o.p.dead || w.embedded || !o.guess.known || !o.p.set.IsZero() || len(w.steps) > 1 {
		return
	}
	var least, most reader.Pipeline
	for _, s := range o.knew {
		age, off := o.from.Sub(s.at), s.off+o.guess.off+time.Millisecond
		fresh := 3 * w.shape.announce
		if !s.sure || age < fresh+off {
			count(&most, s)
		}
		if s.sure && age < fresh-off {
			count(&least, s)
		}
	}
	if got := o.pipeline; got.Workers < least.Workers || got.Workers > most.Workers {
		w.violate("%s says that %d aggregators are alive, of which %d to %d have written a record lately", o.p.name, got.Workers, least.Workers, most.Workers)
	} else if got.Lag < least.Lag || got.Lag > most.Lag {
		w.violate("%s says that the lag is %s, where aggregators have written %s to %s", o.p.name, got.Lag, least.Lag, most.Lag)
	}
}

// count takes a record into a pipeline.
func count(p *reader.Pipeline, s said) {
	if !s.Stalled {
		p.Workers++
	}
	p.Lag = max(p.Lag, s.Lag)
}
