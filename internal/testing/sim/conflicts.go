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
			w.oracles.ledger.conflicted(s)
		} else {
			s.durable()
		}
	}
}
