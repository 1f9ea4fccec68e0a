package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// An answered is what an operator was told of a reset with an id.
type answered struct {
	done   store.ResetResult
	jumped time.Duration // World.jumped when it was asked
}

// operate lets an operator raise, reset or delete a counter, or reset it again under an id.
func (w *World) operate() {
	lives := w.lives(reading)
	if len(lives) == 0 {
		return
	}
	p, counter := pick(w, lives), pick(w, counters[:2+w.shape.counters])
	if w.rng.IntN(8) == 0 {
		w.putAhead(counter)
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
		w.ask(o, p, func(ctx context.Context) error {
			done, err := p.adm.Delete(ctx, counter)
			o.done = done.ResetResult
			return err
		})
	}
}

// putAhead has the store's clock have been ahead, by far, at the last reset of a counter.
func (w *World) putAhead(counter string) {
	if by := 5 * 365 * 24 * time.Hour; w.fake.Ahead(counter, by) {
		w.say(nil, "the last reset of %s was by a clock that was %s ahead", counter, by)
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
			if left := w.fake.Left(counter); left != 0 {
				w.violate("%d of %s are left after a reset, when nothing is counted any more", left, counter)
			}
			w.unreset, w.lastReset, w.tries = w.unreset[1:], nil, 0
			continue
		}
		lives := w.lives(reading)
		if len(lives) == 0 {
			return false
		}
		if w.tries++; w.tries > mostTries {
			w.violate("%s cannot be reset: %v", counter, w.lastReset.err)
			return true
		}
		w.putAhead(counter)
		w.lastReset = w.askReset(pick(w, lives), counter, "")
		return false
	}
	return true
}

func (w *World) askReset(p *proc, counter, id string) *op {
	o := w.newOp("reset")
	o.names, o.id = []string{counter}, id
	w.ask(o, p, func(ctx context.Context) error {
		done, err := p.adm.Reset(ctx, counter, o.id)
		o.done = done.ResetResult
		return err
	})
	return o
}

// finishChange: what an operator is told was removed is increments, each once, and under one
// id the same each time.
func (w *World) finishChange(o *op) {
	if o.p.dead {
		return
	}
	if o.err != nil {
		w.checkNoTotal(o)
		return
	}
	if o.kind == "grow" {
		return
	}
	counter := o.names[0]
	if !increments(counter, o.done.Removed) {
		w.violate("a %s removed %d of %s, which is no sum of its increments", o.kind, o.done.Removed, counter)
	}
	if o.id == "" {
		if did := w.did[o.n]; did != o.done.Removed {
			w.violate("a %s of %s says that it removed %d, and removed %d", o.kind, counter, o.done.Removed, did)
		}
		return
	}
	key := counter + "/" + o.id
	first, again := w.told[key]
	if again && o.jumped < first.jumped {
		return // a late answer about a reset that may be forgotten since
	}
	// Beyond the window it is another reset.
	if again && first.jumped == w.jumped && (first.done.Removed != o.done.Removed || !first.done.At.Equal(o.done.At)) {
		w.violate("reset %s of %s was told that it removed %d as of %s, and now %d as of %s", o.id, counter,
			first.done.Removed, first.done.At.Format(clockFormat), o.done.Removed, o.done.At.Format(clockFormat))
	}
	w.told[key] = answered{o.done, o.jumped}
}

// increments reports whether a total is a sum of a counter's increments, none of them twice.
func increments(counter string, total int64) bool {
	if counter == below {
		total = -total
	}
	for rest := total; rest > 0; rest >>= 2 {
		if rest&3 > 1 {
			return false
		}
	}
	return total >= 0
}

// An adminStore is the store as an admin sees it: what it is told of the database the
// other roles of its process do not hear.
type adminStore struct{ *simStore }

// Check tells the settings.
func (s adminStore) Check(ctx context.Context) (checked store.Checked, err error) {
	err = s.call(ctx, "settings", 0, CheckFails, nil, nil, func() (err error) {
		if s.w.swapped {
			return errSwapped
		}
		checked, err = s.w.fake.Check(background)
		return err
	})
	return checked, err
}

// GrowCounter raises for an operator.
func (s *simStore) GrowCounter(ctx context.Context, counter string, shards int) (named int, err error) {
	var answer int
	err = s.change(ctx, "growth one", stringsKey([]string{counter}), RaiseLost, RaiseAnswerLost, RaiseLate,
		func() string { return fmt.Sprint(counter, " to ", shards) }, func() (err error) {
			answer, err = s.w.fake.GrowCounter(background, counter, shards)
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
			answer, err = s.w.reset(s.p, r, by)
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

// reset notes what each reset takes off, once, and checks that it is what was folded by its
// moment.
func (w *World) reset(p *proc, r store.ResetRequest, by int) (store.ResetResult, error) {
	_, repeated := w.fake.Marker(r.ID)
	done, err := w.fake.ResetCounter(background, r)
	w.say(p, "   reset %s reaches the store: removes %d, %v", short(r.ID), done.Removed, err)
	if err != nil || repeated {
		return done, err
	}
	w.Resets++
	w.removed[r.Counter] += done.Removed
	w.did[by] += done.Removed
	if was := w.fake.TotalAt(r.Counter, done.At); was != r.Look.Sum {
		w.violate("a reset of %s as of %s takes %d for its sum, when it was %d", r.Counter, done.At.Format(clockFormat), r.Look.Sum, was)
	}
	return done, nil
}

// SweepCounters is for whoever aggregates; here the world does it (sweep).
func (s *simStore) SweepCounters(ctx context.Context, after time.Duration) (int, error) {
	return 0, errors.New("sim: nobody calls this")
}

// sweep removes deleted counters, as an aggregator does every hour.
func (w *World) sweep() bool {
	had := w.recorded()
	n, _ := w.fake.SweepCounters(background, store.SweepAfter)
	w.noteSweep(had)
	w.trace("sweep", nil, "", uint64(n))
	w.say(nil, "%d deleted counters are swept", n)
	w.Swept += n
	return n > 0
}

// passDay lets about a day pass, after which deleted counters are swept, often at once.
func (w *World) passDay() {
	w.pass(store.SweepAfter + []time.Duration{-10 * time.Minute, time.Minute, time.Minute, time.Hour}[w.rng.IntN(4)])
	if w.rng.IntN(3) > 0 && w.sweep() {
		w.hit(Swept)
	}
}

// checkRemoved: what resets have removed and what is left is together what was folded.
func (w *World) checkRemoved() {
	for counter, folded := range w.folded {
		if left := w.fake.Left(counter); !w.crowd.overflows(counter) && left+w.removed[counter] != folded {
			w.violate("%d of %s were folded, resets removed %d, and %d are left", folded, counter, w.removed[counter], left)
		}
	}
}
