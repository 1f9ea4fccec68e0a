package fakestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// A record is a version of a counter's record. After a sweep it does not exist.
type record struct {
	exists    bool
	shards    int64
	remainder int128.Int // of a group
	store.ResetState
}

func (r record) reset() store.ResetState {
	return store.ResetState{Baseline: r.Baseline, ResetAt: r.ResetAt, DeletedAt: r.DeletedAt}
}

var _ store.Store = (*Store)(nil)

// GrowCounter grows one record.
func (s *Store) GrowCounter(ctx context.Context, counter string, shards int) (named int, err error) {
	answer, err := s.begin(ctx, GrowCounter, nil)
	if err != nil {
		return 0, err
	}
	if err := s.checkGrowth(store.Growth{Counter: counter, Shards: shards}); err != nil {
		return 0, err
	}
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r, _ := s.records[counter].newest(); r.shards > int64(shards) {
			named = int(r.shards)
			return nil
		}
		s.growLocked([]store.Growth{{Counter: counter, Shards: shards}}, s.commitTimeLocked())
		named = shards
		return nil
	})
	return named, undone(err)
}

// ResetCounter applies a reset.
func (s *Store) ResetCounter(ctx context.Context, r store.ResetRequest) (done store.ResetResult, err error) {
	answer, err := s.begin(ctx, Reset, nil)
	if err != nil {
		return done, err
	}
	if r.ID.Class() != wire.ResetClass {
		return done, s.mistake("%s is not the id of a reset", r.ID)
	}
	err = s.do(ctx, answer, func() (err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		done, err = s.resetLocked(&r)
		return err
	})
	return done, undone(err)
}

func (s *Store) resetLocked(r *store.ResetRequest) (store.ResetResult, error) {
	if _, ok := s.markers[r.ID]; ok {
		return s.resets[r.ID], nil
	}
	now := s.commitTimeLocked()
	rec, _ := s.records[r.Counter].newest()
	var found *store.ResetState
	if rec.exists {
		found = &rec.ResetState
	}
	after, done, err := r.Apply(found, now)
	if err != nil {
		return store.ResetResult{}, err
	}
	if after != nil {
		s.changes++
		rec.ResetState = *after
		s.records[r.Counter] = s.records[r.Counter].set(now, rec, s.oldestLocked())
	}
	s.markers[r.ID] = store.Marker{ID: r.ID, At: r.At, ExpireAt: r.ExpireAt}
	s.resets[r.ID] = done
	s.counts.Resets++
	return done, nil
}

// SweepCounters removes deleted counters.
func (s *Store) SweepCounters(ctx context.Context, after time.Duration) (removed int, err error) {
	answer, err := s.begin(ctx, Sweep, nil)
	if err != nil {
		return 0, err
	}
	err = s.do(ctx, answer, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := s.commitTimeLocked()
		for counter, h := range s.records {
			if r, _ := h.newest(); !r.DeletedAt.IsZero() && !s.settings.Rules.Kept(counter) && !r.DeletedAt.After(at.Add(-after)) && s.sweepLocked(counter, r, at) {
				removed++
			}
		}
		return nil
	})
	return removed, err
}

// sweepLocked removes a deleted counter. If it has counted something since, it exists again.
func (s *Store) sweepLocked(counter string, r record, at time.Time) bool {
	keep := s.oldestLocked()
	sum := r.remainder
	for n := range int(r.shards) {
		v, _ := s.shards[shardKey{counter, n}].newest()
		sum = sum.Add(v)
	}
	if sum != r.Baseline {
		r.DeletedAt = time.Time{}
		s.records[counter] = s.records[counter].set(at, r, keep)
		return false
	}
	for n := range int(r.shards) {
		key := shardKey{counter, n}
		if _, ok := s.shards[key]; ok {
			s.shards[key] = s.shards[key].set(at, int128.Int{}, keep)
			s.bucketed[key] = s.bucketed[key].set(at, int128.Int{}, keep)
			delete(s.shardStats, key)
			delete(s.grouped, key)
		}
	}
	s.dropSeriesLocked(counter, at, keep)
	s.records[counter] = s.records[counter].set(at, record{}, keep)
	return true
}

// undone marks errors after which nothing was applied.
func undone(err error) error {
	if errors.Is(err, store.ErrDeployment) || errors.Is(err, store.ErrRefused) {
		return fmt.Errorf("%w: %w", countmill.ErrUnavailable, err)
	}
	return err
}
