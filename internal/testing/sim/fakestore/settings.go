package fakestore

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Check returns the store's time and its settings at that time, unless a hook answers otherwise.
func (s *Store) Check(ctx context.Context) (checked store.Checked, err error) {
	answer, err := s.begin(ctx, Check, nil)
	if err != nil {
		return store.Checked{}, err
	}
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.opts.Age == nil {
			checked.At = s.readTimeLocked()
		}
		checked.Settings = s.settingsLocked(checked.At)
		return nil
	})
	return checked, err
}

// settingsLocked advances ForgetBefore; now is the store's time.
func (s *Store) settingsLocked(now time.Time) store.Settings {
	if s.opts.Age == nil {
		s.settings = s.settings.At(now)
		return s.settings
	}
	age := s.opts.Age()
	s.settings = s.settings.Advance(s.opts.now(), age-s.moved)
	s.moved = age
	return s.settings
}

// SetWindow changes the settings.
func (s *Store) SetWindow(ctx context.Context, window time.Duration) (set store.Settings, err error) {
	if window <= 0 {
		return set, fmt.Errorf("%w: the window must be positive, got %s", store.ErrRefused, window)
	}
	answer, err := s.begin(ctx, SetWindow, nil)
	if err != nil {
		return set, err
	}
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := s.opts.now()
		if s.opts.Age == nil {
			now = s.commitTimeLocked()
		}
		set = s.settingsLocked(now)
		if window != set.Window {
			s.settings = set.Changed(window, now)
			set = s.settingsLocked(now)
		}
		return nil
	})
	return set, err
}

// ChangeRules changes the settings.
func (s *Store) ChangeRules(ctx context.Context, change store.RuleChange) (set store.Settings, err error) {
	answer, err := s.begin(ctx, ChangeRules, nil)
	if err != nil {
		return set, err
	}
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		// Records of the journal that were written before have earlier moments.
		moment := s.commitTimeLocked()
		now := moment
		if s.opts.Age != nil {
			now = s.opts.now()
		}
		next, err := s.settingsLocked(now).ChangeRules(change, moment, s.settle())
		if err != nil {
			return err
		}
		s.settings, s.oldest = next, max(s.oldest, next.Rules.Oldest())
		if x := change.Index; x != nil && x.Step == store.RemoveIndex {
			delete(s.ranges, rangeKey{x.Index.Number, 1})
		}
		set = s.settingsLocked(now)
		return nil
	})
	return set, err
}

// Expire removes the markers that have expired by now, as early as a TTL policy may.
func (s *Store) Expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.markers, func(_ wire.PartID, m store.Marker) bool { return !m.ExpireAt.After(now) })
	s.forgetDeadLetterRefsLocked(func(a store.DeadLetterRef) bool { return !a.ExpireAt.After(now) })
}

// Forget removes all markers that the store may remove now.
func (s *Store) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.readTimeLocked()
	oldest := s.settingsLocked(now).ForgetBefore.Add(-store.MarkerSlack)
	maps.DeleteFunc(s.markers, func(_ wire.PartID, m store.Marker) bool {
		if s.opts.Age == nil {
			return !m.ExpireAt.After(now)
		}
		return m.At.Before(oldest)
	})
	s.forgetDeadLetterRefsLocked(func(a store.DeadLetterRef) bool {
		return s.opts.Age == nil && !a.ExpireAt.After(now) || s.opts.Age != nil && a.At.Before(oldest)
	})
}

func (s *Store) forgetDeadLetterRefsLocked(over func(a store.DeadLetterRef) bool) {
	for _, letters := range s.refs {
		maps.DeleteFunc(letters, func(_ string, a store.DeadLetterRef) bool { return over(a) })
	}
}
