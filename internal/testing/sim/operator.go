package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// operate lets an operator raise, reset or delete a counter, or reset it again under an id.
func (w *World) operate() {
	lives := w.procs.lives(reading)
	if len(lives) == 0 {
		return
	}
	p, counter := pick(w.rng, lives), pick(w.rng, counters[:2+w.shape.counters])
	if w.rng.IntN(8) == 0 {
		w.db.putAhead(counter)
	}
	switch n := w.rng.IntN(10); {
	case n < 2:
		o := w.newOp("grow")
		o.names, o.staleness = []string{counter}, 0
		shards := 1 + w.rng.IntN(8)
		w.ask(o, p, func(ctx context.Context) error { return p.adm.Grow(ctx, counter, shards) })
	case n < 7:
		id := ""
		if w.rng.IntN(3) > 0 {
			id = fmt.Sprint("r", w.rng.IntN(3))
		}
		w.askReset(p, counter, id)
	default:
		o := w.newOp("delete")
		o.names = []string{counter}
		w.ask(o, p, func(ctx context.Context) (err error) {
			o.done, err = p.adm.Delete(ctx, counter)
			return err
		})
	}
}

// mostTries is how often a reset is asked for when nothing breaks any more. Each may take so
// long that it is given up, as time passes in leaps.
const mostTries = 50

// resetLast resets the counters that are left for it, one after the other, after which
// nothing may be left of them. It reports whether all are.
func (w *World) resetLast() bool {
	if len(w.asked) > 0 {
		return false
	}
	for len(w.unreset) > 0 {
		counter := w.unreset[0]
		if w.lastReset != nil && w.lastReset.err == nil {
			if left := w.db.fake.Left(counter); left != 0 {
				w.violate("%d of %s are left after a reset, when nothing is counted any more", left, counter)
			}
			w.unreset, w.lastReset, w.tries = w.unreset[1:], nil, 0
			continue
		}
		lives := w.procs.lives(reading)
		if len(lives) == 0 {
			return false
		}
		if w.tries++; w.tries > mostTries {
			w.violate("%s cannot be reset: %v", counter, w.lastReset.err)
			return true
		}
		w.db.putAhead(counter)
		w.lastReset = w.askReset(pick(w.rng, lives), counter, "")
		return false
	}
	return true
}

func (w *World) askReset(p *proc, counter, id string) *op {
	o := w.newOp("reset")
	o.names, o.id = []string{counter}, id
	w.ask(o, p, func(ctx context.Context) (err error) {
		o.done, err = p.adm.Reset(ctx, counter, o.id)
		return err
	})
	return o
}

// An adminStore is the store as an admin sees it: what it is told of the database the
// other roles of its process do not hear.
type adminStore struct{ *simStore }

// Check tells the settings.
func (s adminStore) Check(ctx context.Context) (checked store.Checked, err error) {
	err = s.call(ctx, "settings", 0, CheckFails, nil, nil, func() (err error) {
		if s.swapped {
			return errSwapped
		}
		checked, err = s.fake.Check(background)
		return err
	})
	return checked, err
}

// GrowCounter raises for an operator.
func (s *simStore) GrowCounter(ctx context.Context, counter string, shards int) (named int, err error) {
	var answer int
	err = s.change(ctx, "growth one", stringsKey([]string{counter}), RaiseLost, RaiseAnswerLost, RaiseLate,
		func() string { return fmt.Sprint(counter, " to ", shards) }, func() (err error) {
			answer, err = s.fake.GrowCounter(background, counter, shards)
			return err
		})
	return answer, refusal(err)
}

// ResetCounter resets for an operator.
func (s *simStore) ResetCounter(ctx context.Context, r store.ResetRequest) (done store.ResetResult, err error) {
	var answer store.ResetResult
	by, _ := ctx.Value(opKey{}).(int)
	err = s.change(ctx, "reset", stringsKey([]string{r.Counter, r.ID.String()}), ResetLost, ResetAnswerLost, ResetLate,
		func() string {
			return fmt.Sprintf("%s id %s, %s as of %s, delete %t", r.Counter, short(r.ID), sumText(r.Counter, r.Look.Sum), r.Look.At.Format(clockFormat), r.Delete)
		}, func() (err error) {
			answer, err = s.reset(s.p, r, by)
			return err
		})
	return answer, refusal(err)
}

// refusal is how a store says that nothing was done.
func refusal(err error) error {
	if errors.Is(err, errDeployment) {
		return fmt.Errorf("%w: %w", countmill.ErrUnavailable, err)
	}
	return err
}

// passDay lets about a day pass, after which deleted counters are swept, often at once.
func (w *World) passDay() {
	w.pass(store.SweepAfter + []time.Duration{-10 * time.Minute, time.Minute, time.Minute, time.Hour}[w.rng.IntN(4)])
	if w.rng.IntN(3) > 0 && w.db.sweep() {
		w.hit(Swept)
	}
}
