package protocol

import (
	"context"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// Sweep removes markers and asides when ForgetBefore is past their time by store.MarkerSlack, and the rows of workers that ended a day
// ago. Call it every store.SweepEvery. A database with a clock of its own for that needs no calls.
func (s *Store) Sweep(ctx context.Context) error {
	if s.facts.expires {
		return nil
	}
	s.sweeping.Lock() // ForgetBefore in the meta row never goes back
	defer s.sweeping.Unlock()
	s.changing.RLock()
	defer s.changing.RUnlock()
	v := s.engine.View(time.Time{})
	defer v.Close()
	m, err := s.metaIn(ctx, v)
	if err != nil {
		return err
	}
	settings := s.asOf(m.settings, v.At())
	before := micros(settings.ForgetBefore.Add(-store.MarkerSlack))
	var with []engine.Change
	if s.facts.machineClock {
		// The next process must not take ids whose markers are gone.
		with = append(with, *m.change(engine.Update, settings))
	}
	for kind, before := range map[engine.KindID]int64{kindMarker: before, kindAside: before, kindWorker: micros(s.clock(v))} {
		if err := s.engine.Expire(ctx, kind, before, with); err != nil {
			return outside(err)
		}
	}
	return nil
}

// clock returns the time for what ends by the clock. The moments of an exclusive engine stay ahead of a clock that showed 2040 once.
func (s *Store) clock(v engine.View) time.Time {
	if s.facts.machineClock {
		return s.cfg.Clock()
	}
	return v.At()
}
