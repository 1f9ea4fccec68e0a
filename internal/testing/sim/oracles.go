package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// askAgain is how long a process may take the database for the right one after it was
// told so: the roles' own ten seconds and a little.
const askAgain = 10*time.Second + 100*time.Millisecond

// asks notes that a process asks for the database, and answered that it was told.
func (p *proc) asks() { p.asking++ }

func (p *proc) answered(at time.Time) {
	p.asking--
	p.asked = at
}

// hears notes whether the store has just answered that it is another database. The process may
// ignore an answer that came too late.
func (p *proc) hears(ctx context.Context, err error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	switch {
	case err == nil:
		p.told, p.late = time.Time{}, 0
	case errors.Is(err, errSwapped) && p.told.IsZero() && ctx.Err() == nil:
		p.told = time.Now()
	}
}

// checkAsked: a process that folds or reads has asked not long ago which database it is,
// or asks just now.
func (p *proc) checkAsked(s *step) {
	if p.asking > 0 || p.agg == nil && p.rdr == nil || s.ctx.Err() != nil { // a call that was cut off goes nowhere
		return
	}
	if late := s.at.Sub(p.asked); late > askAgain {
		p.w.violate("%s goes on with a %s %s after it last asked which database this is", p.name, s.op, late)
	}
}

// A rivalry is two requests under one key, or two increments under one id: one of them
// counts.
type rivalry struct {
	first  []*sum
	second *sum
}

// checkRivals: nothing of a request is counted where another has won its key.
func (w *World) checkRivals(totals map[string]int64) {
	for _, r := range w.rivals {
		if r.second.renewed || r.second.times(totals[r.second.counter]) == 0 {
			continue
		}
		for _, s := range r.first {
			if !s.renewed && s.times(totals[s.counter]) > 0 {
				w.violate("increments %d of %s and %d of %s have one id or key, and both are counted",
					s.digit, s.counter, r.second.digit, r.second.counter)
			}
		}
	}
}

// checkLetter: a dead letter gives the right reason, and what it says was not applied was
// not.
func (w *World) checkLetter(d *store.DeadLetter, parts []wire.Part, totals map[string]int64) {
	reused := strings.HasPrefix(d.Reason, "id reused")
	if d.Maybe && !reused {
		return
	}
	certain := !d.Maybe && (w.cured == 0 || !hasPoison(parts)) // a cured store counts a message that is delivered again
	for _, s := range w.ledger {
		if !slices.ContainsFunc(parts, func(p wire.Part) bool { return s.in(&p) }) {
			continue
		}
		if reused && !s.reused {
			w.violate("increment %d of %s is in a dead letter for an id that nobody reused", s.digit, s.counter)
		}
		if certain && !s.renewed && s.times(totals[s.counter]) > 0 {
			w.violate("increment %d of %s is counted, and a dead letter says that it is not: %s", s.digit, s.counter, d.Reason)
		}
	}
}

// checkLag: an aggregator says no less than how long it holds the oldest message, nor than how old
// that is by the broker's time and the store's, if it knows the store's.
func (p *proc) checkLag(s *step) {
	w := p.w
	stored := w.storeNow().Add(-time.Since(s.at) - w.jumped + s.jumped) // when it said so
	w.mu.Lock()
	lag, doubt := p.lag, p.doubt+slack
	w.mu.Unlock()
	for _, d := range w.bus.held {
		if d.sub.p != p || !d.at.Before(s.at) || closed(d.msg.Acked()) || closed(d.msg.Nacked()) {
			continue
		}
		if held := s.at.Sub(d.at); lag < held {
			w.violate("%s says that its lag is %s, and holds message %d for %s", p.name, lag, d.parcel.n, held)
		}
		if old := stored.Sub(d.parcel.published) - doubt; !w.embedded && p.learned && p.set.IsZero() && lag < old {
			w.violate("%s says that its lag is %s, and holds message %d, which is %s old", p.name, lag, d.parcel.n, old)
		}
	}
}

// checkYoung: on one machine nobody repeats a part without an id, and its age does not matter.
func (w *World) checkYoung(d *store.DeadLetter, parts []wire.Part) {
	judged := strings.HasPrefix(d.Reason, "beyond the deduplication window") || strings.HasPrefix(d.Reason, "time is more than")
	if w.embedded && judged && slices.ContainsFunc(parts, func(p wire.Part) bool { return p.Kind == wire.Anonymous }) {
		w.violate("a part without a marker is in a dead letter for its time: %s", d.Reason)
	}
}

// in reports whether the part holds the increment.
func (s *sum) in(p *wire.Part) bool {
	return slices.ContainsFunc(p.Entries, func(e wire.Entry) bool { return e.Counter == s.counter && s.times(e.Delta) > 0 })
}

// rival notes that s came under the id or key of o.
func (w *World) rival(o *op, s *sum) {
	first := o.sums[:1]
	if o.key != "" {
		first = o.sums
	}
	s.reused = true
	for _, f := range first {
		f.reused = true
	}
	w.rivals = append(w.rivals, rivalry{first, s})
}
