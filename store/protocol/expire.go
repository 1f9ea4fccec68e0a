package protocol

import (
	"cmp"
	"context"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// Sweep removes rows that expire. By the machine's clock markers and references go when ForgetBefore is past their time by store.MarkerSlack.
func (s *Store) Sweep(ctx context.Context) error {
	if s.limits.Expires {
		return nil
	}
	// Before the removal: no process takes ids whose markers are gone, also if the clock is set back.
	settings, now, err := s.keepForgetBefore(ctx, 0)
	if err != nil {
		return err
	}
	before := settings.ForgetBefore.Add(-store.MarkerSlack)
	if !s.facts.machineClock {
		before = now // markers go by their own time
	}
	for id := range Kinds {
		kind, end := engine.KindID(id), now
		if kind == kindMarker || kind == kindLetterRef {
			end = before
		}
		if Kinds[id].Expires {
			err = cmp.Or(err, s.engine.Expire(ctx, kind, micros(end)))
		}
	}
	return err
}

// keepForgetBefore writes ForgetBefore into the meta row if it has moved there by more than a duration, and returns the settings and
// the time of a sweep.
func (s *Store) keepForgetBefore(ctx context.Context, by time.Duration) (settings store.Settings, now time.Time, err error) {
	err = s.transact(ctx, false, func(tx engine.Tx) error {
		m, err := s.metaIn(ctx, tx)
		if err != nil {
			return err
		}
		if settings = s.asOf(m.Settings, tx.Now()); settings.ForgetBefore.Sub(m.Settings.ForgetBefore) > by {
			tx.Change(&engine.Change{Key: metaKey, Op: engine.Update, Set: []engine.Field{field(fieldForget, micros(settings.ForgetBefore))}})
		}
		now = s.sweepTime(tx.Now())
		return nil
	})
	return settings, now, err
}

// clock returns the time for what ends by the clock. It is that of the database, or of the machine: the moments of an engine stay ahead
// of a machine's clock that showed 2040 once.
func (s *Store) clock(at time.Time) time.Time {
	if s.facts.machineClock {
		return s.cfg.Clock()
	}
	return at
}

// sweepTime is clock for rows that are removed for good. If a machine's clock shows 2040 for a moment, nothing of this year is removed.
func (s *Store) sweepTime(at time.Time) time.Time {
	now := s.clock(at)
	if x := &s.machine; s.facts.machineClock {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.time.Before(now) {
			now = x.time
		}
	}
	return now
}
