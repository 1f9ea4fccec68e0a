package sim

import (
	"errors"

	"github.com/countmill/countmill"
)

// finishConflicts takes in an answer that names the increments of an op that were not counted. All
// others were.
func (w *World) finishConflicts(o *op) {
	var told *countmill.ConflictsError
	if !errors.As(o.err, &told) || len(told.Conflicts) == 0 {
		w.violate("a caller was told of conflicts, and not which: %v", o.err)
		return
	}
	named := make(map[int]bool)
	for _, c := range told.Conflicts {
		if c.Position < 0 || c.Position >= len(o.incs) || o.incs[c.Position].ID != c.ID || c.ID == "" {
			w.violate("a caller was told that position %d of %d increments conflicts by the id %q", c.Position, len(o.incs), c.ID)
			return
		}
		named[c.Position] = true
		w.trace("conflict", nil, c.ID, uint64(c.Position))
	}
	for i, s := range o.sums {
		if named[i] {
			w.conflicted(s)
		} else {
			s.durable()
		}
	}
}

// conflicted notes that an increment was refused for its id: it is not counted, nor will be.
func (w *World) conflicted(s *sum) {
	w.Conflicts++
	if !s.reused {
		w.violate("increment %d of %s was refused for an id that nobody reused", s.digit, s.counter)
	}
	s.refused, s.least, s.most = true, 0, 0
}

// checkRefused: an increment is refused only where its rival is counted.
func (w *World) checkRefused(totals map[string]int64) {
	for _, r := range w.rivals {
		for _, s := range r.first {
			w.checkWon(r.second, s, totals)
			w.checkWon(s, r.second, totals)
		}
	}
}

// checkWon looks whether the winner was counted where the other one was refused for it.
func (w *World) checkWon(winner, refused *sum, totals map[string]int64) {
	if refused.refused && winner.times(totals[winner.counter]) == 0 {
		w.violate("increment %d of %s was refused, and increment %d of %s, which has its id, was not counted",
			refused.digit, refused.counter, winner.digit, winner.counter)
	}
}
