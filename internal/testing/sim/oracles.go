package sim

import (
	"slices"
	"strings"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

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
