package sequence

import (
	"context"
	"errors"
	"fmt"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// attempt makes one transaction for the calls of a queue, and sets their answers. An
// error means that the others are to be repeated later.
func (x *Issuer) attempt(sequence string, batch []*call) error {
	ctx, cancel := context.WithTimeout(x.calls, x.cfg.CallTimeout)
	defer cancel()
	set, err := x.settings(ctx)
	if err != nil {
		x.fail(batch, fmt.Errorf("%w: reading the settings: %w", countmill.ErrUnavailable, err))
		return err
	}
	batch, takes := x.stamp(batch, set)
	if len(batch) == 0 {
		return nil
	}
	x.stats.transactions.Add(1)
	given, err := x.store.NextValues(ctx, sequence, takes)
	if err != nil {
		x.stats.failures.Add(1)
		x.fail(batch, err)
		return err
	}
	x.answer(batch, given)
	return nil
}

// stamp sets the times of the markers and refuses the calls whose markers may be forgotten. It returns
// the others, with their takes. Each repeat of a call has the same id and the same time.
func (x *Issuer) stamp(batch []*call, set store.Settings) (rest []*call, takes []store.Take) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.clock.Now()
	for _, c := range batch {
		if c.gone {
			continue
		}
		if c.take.At.IsZero() {
			c.take.At = later(later(c.asked, now), set.ForgetBefore)
		}
		first := c.asked
		if first.IsZero() {
			first = c.take.At
		}
		switch {
		case !set.Refuses(first):
			// A repeat has the id of the first try: if that was applied, its marker has the values.
			c.take.ExpireAt = set.Expiry(now, c.take.At)
			rest, takes = append(rest, c), append(takes, c.take)
		case c.maybe: // the machine was suspended between two transactions
			c.err = fmt.Errorf("%w: the first try was longer ago than ids are remembered", countmill.ErrOutcomeUnknown)
		default:
			c.err = fmt.Errorf("%w: the time %s is before the deduplication window, which begins at %s", countmill.ErrIDExpired,
				first.UTC().Format(timeFormat), set.ForgetBefore.UTC().Format(timeFormat))
		}
	}
	return rest, takes
}

const timeFormat = "2006-01-02T15:04:05.000000Z"

// fail notes an error of the store. A call that was never in a transaction with an unknown outcome gets
// an answer if the error says that nothing was done. All others are repeated with the same ids: an
// earlier transaction may be applied, or may still be on its way.
func (x *Issuer) fail(batch []*call, err error) {
	undone := errors.Is(err, countmill.ErrUnavailable)
	x.mu.Lock()
	defer x.mu.Unlock()
	closing := x.calls.Err() != nil
	for _, c := range batch {
		if c.gone {
			continue
		}
		c.last = err
		if !undone && !errors.Is(err, store.ErrNotApplied) {
			c.maybe = true
		}
		switch {
		case undone && !c.maybe:
			c.err = err
		case closing && c.maybe:
			c.err = fmt.Errorf("%w: %v", countmill.ErrOutcomeUnknown, err) // not %w: it says less
		case closing:
			c.err = fmt.Errorf("%w: %w", countmill.ErrClosed, err)
		}
	}
}

// A CountError is about an id that came with another count before. It matches countmill.ErrConflict.
type CountError struct{ Given, Asked int }

// Error is one line with both counts.
func (e *CountError) Error() string {
	values := "values"
	if e.Given == 1 {
		values = "value"
	}
	return fmt.Sprintf("%v: this id got %d %s before, and now asks for %d", countmill.ErrConflict, e.Given, values, e.Asked)
}

// Is makes errors.Is(err, countmill.ErrConflict) true.
func (e *CountError) Is(target error) bool { return target == countmill.ErrConflict }

// answer sets the answers of a transaction that was applied.
func (x *Issuer) answer(batch []*call, given []store.Given) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, c := range batch {
		switch g := given[i]; {
		case c.gone:
		case g.Count == 0:
			c.err = fmt.Errorf("%w: fewer than %d values are left", countmill.ErrExhausted, c.take.Count)
		case g.Count != c.take.Count:
			c.err = &CountError{Given: g.Count, Asked: c.take.Count}
		default:
			c.given = g
			x.stats.calls.Add(1)
			x.stats.values.Add(int64(g.Count))
		}
	}
}
