package sim

import (
	"time"

	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// An accuracy is how far a role's clock may be from the store's, where it learns as clock.Store does:
// from checks of the database and from folds.
type accuracy struct {
	known bool
	off   time.Duration // at most
	moved time.Duration // how far its machine's clock and the store's were set so far
	asked time.Time     // when the call began that it learned from last
	told  time.Time     // the store's time in the answer
}

// A lesson is a call that has begun and whose answer has the store's time.
type lesson struct {
	at    time.Time // by a clock that nobody sets
	wall  time.Time // by clocks that are right
	moved time.Duration
}

// sets notes that the machine's clock or the store's is set by so much. kernel.mu is held.
func (a *accuracy) sets(by time.Duration) {
	a.off += by.Abs()
	a.moved += by.Abs()
}

// begins is when a call begins.
func (s *simStore) begins() lesson {
	wall := s.db.wall()
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return lesson{time.Now(), wall, s.clock.moved}
}

// learns takes the answer of a call in.
func (s *simStore) learns(l lesson, told time.Time) {
	took, ahead := s.db.wall().Sub(l.wall), told.Sub(s.db.storeNow())
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	a := s.clock
	moved := a.moved - l.moved
	took += moved
	switch {
	case told.IsZero(), l.at.Before(a.asked) && told.Before(a.told), !a.known && took > time.Minute:
		return // it teaches nothing
	}
	// The clock shows the answer's time, or a later one, by the duration of the call at most.
	off := max(ahead.Abs(), (ahead + took).Abs())
	if a.known && moved == 0 && ahead <= exact && ahead+took >= -exact { // the right time is among those
		off = min(off, a.off)
	}
	a.known, a.off, a.asked, a.told = true, off, l.at, told
}

// exact is what times are not compared below.
const exact = time.Millisecond

// checkExpiry: an aggregator's record is good for three rounds by the store's time. After the last one nobody takes the aggregator for late.
func (p *proc) checkExpiry(worker *store.Worker) {
	now := p.k.storeNow()
	p.k.mu.Lock()
	a, dead, ends := p.aggClock, p.dead, p.leaving || p.unsure
	p.k.mu.Unlock()
	lasts := worker.Expires.Sub(now)
	if full := 3 * p.k.shape.announce; !dead && a.known && (lasts-full).Abs() > a.off+exact && (!ends || (lasts+store.WorkerLate).Abs() > a.off+exact) {
		p.k.violate("%s writes a record that expires in %s by the store's time, %s was to be", p.name, lasts, full)
	}
}

// checkPipeline: a reader goes by the records that have not expired by the store's time, whatever its own
// clock shows. The records are the ones that it read last.
func (to *totalOracle) checkPipeline(o *op) {
	if o.p.dead || !o.accuracy.known {
		return
	}
	var least, most reader.Pipeline
	for _, r := range o.records {
		left, off := r.Expires.Sub(o.from), o.accuracy.off+exact
		if left > off {
			count(&least, &r)
		}
		if left > -off {
			count(&most, &r)
		}
	}
	if got := o.pipeline; got.Workers < least.Workers || got.Workers > most.Workers {
		to.violate("%s says that %d aggregators are alive, and by their records and the store's time %d to %d are", o.p.name, got.Workers, least.Workers, most.Workers)
	} else if got.Lag < least.Lag || got.Lag > most.Lag {
		to.violate("%s says that the lag is %s, and by their records and the store's time it is %s to %s", o.p.name, got.Lag, least.Lag, most.Lag)
	}
}

// count takes a record into a pipeline.
func count(p *reader.Pipeline, r *store.Worker) {
	if !r.Stalled {
		p.Workers++
	}
	p.Lag = max(p.Lag, r.Lag)
}
