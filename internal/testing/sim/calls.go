package sim

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill/store"
)

// callBegins takes in a call that parks.
func (w *World) callBegins(s *step) {
	p := s.p
	switch s.op {
	case "announce":
		w.checkLag(p, s)
	case "fold", "lookup", "list":
		w.checkAsked(p, s)
	}
	if s.commit == nil {
		return
	}
	w.checkSwapped(p)
	touched(s.commit, func(key any) {
		if _, ok := p.open[key]; ok {
			w.violate("%s has %v in two open folds", p.name, key)
		}
		p.open[key] = struct{}{}
	})
}

// callEnds takes in a call that goes on.
func callEnds(s *step) {
	if s.commit == nil {
		return
	}
	touched(s.commit, func(key any) { delete(s.p.open, key) })
	s.commit = nil
}

type shardKey struct {
	counter string
	shard   int
}

func touched(c *store.Commit, f func(any)) {
	for _, m := range c.Markers {
		f(m.ID)
	}
	for _, a := range c.Adds {
		f(shardKey{a.Counter, a.Shard})
	}
}

// askAgain bounds how long a process may trust an answer about its database: the roles' own ten
// seconds and a little.
const askAgain = 10*time.Second + 100*time.Millisecond

// asks notes that a process asks which database this is; answered notes the answer.
func (p *proc) asks() { p.k.setClocks(func() { p.asking++ }) }

func (p *proc) answered(at time.Time) {
	p.k.setClocks(func() { p.asking, p.asked = p.asking-1, at })
}

// hears notes whether the store has just answered that it is another database. The process may
// ignore an answer that came too late.
func (p *proc) hears(ctx context.Context, err error) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	switch {
	case err == nil:
		p.told, p.late = time.Time{}, 0
	case errors.Is(err, errSwapped) && p.told.IsZero() && ctx.Err() == nil:
		p.told = time.Now()
	}
}

// checkAsked: a process that folds or reads has asked not long ago which database it is,
// or asks just now.
func (w *World) checkAsked(p *proc, s *step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.asking > 0 || p.agg == nil && p.rdr == nil || s.ctx.Err() != nil { // a call that was cut off goes nowhere
		return
	}
	if late := s.at.Sub(p.asked); late > askAgain {
		w.violate("%s goes on with a %s %s after it last asked which database this is", p.name, s.op, late)
	}
}

// checkSwapped: after an answer that this is another database, a process finishes the folds that it
// had begun, and begins none.
func (w *World) checkSwapped(p *proc) {
	if !w.db.swapped || p.told.IsZero() {
		return
	}
	if p.late++; p.late > w.shape.commits+1 { // one decides about a letter
		w.violate("%s goes on folding into another database, %s after it was told", p.name, time.Since(p.told))
	}
}

// checkLag: an aggregator says no less than how long it holds the oldest message, nor than how old
// that is by the broker's time and the store's, if it knows the store's.
func (w *World) checkLag(p *proc, s *step) {
	stored := w.storeNow().Add(-time.Since(s.at) - w.jumped + s.jumped) // when it said so
	w.mu.Lock()
	lag, doubt := p.lag, p.doubt+slack
	w.mu.Unlock()
	for _, d := range w.bus.held {
		if d.sub.p != p || d.message.moved || !d.at.Before(s.at) || closed(d.msg.Acked()) || closed(d.msg.Nacked()) {
			continue
		}
		if held := s.at.Sub(d.at); lag < held {
			w.violate("%s says that its lag is %s, and holds message %d for %s", p.name, lag, d.message.n, held)
		}
		if old := stored.Sub(d.message.published) - doubt; !w.embedded && p.learned && p.set.IsZero() && lag < old {
			w.violate("%s says that its lag is %s, and holds message %d, which is %s old", p.name, lag, d.message.n, old)
		}
	}
}
