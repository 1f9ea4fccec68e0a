package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill/store"
)

// An operator looks after counters and dead letters.
type operator struct {
	*callers

	unreset    []string // counters that are yet to be reset at the end
	lastReset  *op
	tries      int
	tried      time.Time          // the last of them
	replays    []store.DeadLetter // that were asked for
	unreadable bool               // letters were asked for
}

// operate lets an operator raise, reset or delete a counter, or reset it again under an id.
func (opr *operator) operate() {
	lives := opr.procs.lives(reading)
	if len(lives) == 0 {
		return
	}
	p, counter := pick(opr.rng, lives), pick(opr.rng, counters[:2+opr.shape.counters])
	if opr.rng.IntN(8) == 0 {
		opr.db.putAhead(counter)
	}
	switch n := opr.rng.IntN(10); {
	case n < 2:
		o := opr.newOp("grow", opr.totals.checkChange)
		o.names, o.staleness = []string{counter}, 0
		shards := 1 + opr.rng.IntN(8)
		opr.ask(o, p, func(ctx context.Context) error { return p.adm.Grow(ctx, counter, shards) })
	case n < 7:
		id := ""
		if opr.rng.IntN(3) > 0 {
			id = fmt.Sprint("r", opr.rng.IntN(3))
		}
		opr.askReset(p, counter, id)
	default:
		o := opr.newOp("delete", opr.totals.checkChange)
		o.names = []string{counter}
		opr.ask(o, p, func(ctx context.Context) error {
			done, err := p.adm.Delete(ctx, counter)
			o.done = done.ResetResult
			return err
		})
	}
}

// mostTries is how often a reset is asked for when nothing breaks any more. Each may take so
// long that it is given up, as time passes in leaps.
const mostTries = 50

// resetLast resets the counters that are left for it, one after the other, after which
// nothing may be left of them. It reports whether all are.
func (opr *operator) resetLast() bool {
	if len(opr.asked) > 0 {
		return false
	}
	for len(opr.unreset) > 0 {
		counter := opr.unreset[0]
		if opr.lastReset != nil && opr.lastReset.err == nil {
			if left := opr.db.left(counter); left != 0 {
				opr.violate("%d of %s are left after a reset, when nothing is counted any more", left, counter)
			}
			opr.unreset, opr.lastReset, opr.tries = opr.unreset[1:], nil, 0
			continue
		}
		lives := opr.procs.lives(reading)
		if len(lives) == 0 || opr.tries > 0 && time.Since(opr.tried) < time.Second { // a disk that was full takes writes again after a while
			return false
		}
		opr.tried = time.Now()
		if opr.tries++; opr.tries > mostTries {
			opr.violate("%s cannot be reset: %v", counter, opr.lastReset.err)
			return true
		}
		opr.db.putAhead(counter)
		opr.lastReset = opr.askReset(pick(opr.rng, lives), counter, "")
		return false
	}
	return true
}

func (opr *operator) askReset(p *proc, counter, id string) *op {
	o := opr.newOp("reset", opr.totals.checkChange)
	o.names, o.id = []string{counter}, id
	opr.ask(o, p, func(ctx context.Context) error {
		done, err := p.adm.Reset(ctx, counter, o.id)
		o.done = done.ResetResult
		return err
	})
	return o
}
