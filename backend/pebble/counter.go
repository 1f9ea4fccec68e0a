package pebble

import (
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill/store"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// GrowCounter writes the record in a synced batch, so an acknowledged growth survives a crash.
func (s *Store) GrowCounter(ctx context.Context, counter string, shards int) (named int, err error) {
	err = s.change(ctx, func(b *pebbledb.Batch, _ time.Time) error {
		key := s.keys.named(nil, kindRecord, counter)
		r, exists, err := getRecord(s.db, key)
		if err != nil {
			return err
		}
		if named = max(r.shards, shards); exists && r.shards >= shards && (r.shards > shards || r.DeletedAt.IsZero()) {
			return nil
		}
		return b.Merge(key, encodeRecord(nil, shards), nil)
	})
	return named, err
}

// ResetCounter merges the new record over the old one and inserts its marker, in one synced batch. A
// concurrent fold that grows the counter may come before or after it.
func (s *Store) ResetCounter(ctx context.Context, r store.ResetRequest) (done store.ResetResult, err error) {
	err = s.change(ctx, func(b *pebbledb.Batch, now time.Time) error {
		marker, err := s.findMarkerLocked(r.ID)
		if err != nil {
			return err
		}
		if marker != nil {
			done, err = decodeDone(r.ID, marker)
			return err
		}
		if done, err = s.applyReset(b, &r, now); err != nil {
			return err
		}
		return s.insertDoneLocked(b, &r, done)
	})
	if err != nil {
		return store.ResetResult{}, err
	}
	return done, nil
}

// insertDoneLocked inserts the marker of a reset.
func (s *Store) insertDoneLocked(b *pebbledb.Batch, r *store.ResetRequest, done store.ResetResult) error {
	if r.ID.Class() != wire.ResetClass {
		return fmt.Errorf("%w: %s is not the id of a reset", store.ErrRefused, r.ID)
	}
	e, err := epochOf(r.At)
	if err != nil {
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	s.addEpochLocked(e)
	return b.Set(s.keys.marker(nil, e, r.ID), encodeDone(nil, done, r.At), nil)
}

// change commits the writes that plan puts into a batch. During plan no other change, no fold with
// markers and no sweep runs. now is a moment, as views have them.
func (s *Store) change(ctx context.Context, plan func(b *pebbledb.Batch, now time.Time) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	if err := s.lockMarking(ctx); err != nil {
		return err
	}
	defer s.unlockMarking()
	if err := s.Writable(); err != nil { // first, because in another directory the marker would be missing too
		return fmt.Errorf("%w: %w", countmill.ErrUnavailable, err)
	}
	b := s.db.NewBatch()
	defer b.Close()
	if err := plan(b, s.moments.next()); err != nil || b.Empty() {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.commitSums(b)
}

func (s *Store) applyReset(b *pebbledb.Batch, r *store.ResetRequest, now time.Time) (store.ResetResult, error) {
	key := s.keys.named(nil, kindRecord, r.Counter)
	rec, exists, err := getRecord(s.db, key)
	if err != nil {
		return store.ResetResult{}, err
	}
	var found *store.ResetState
	if exists {
		found = &rec.ResetState
	}
	after, done, err := r.Apply(found, now)
	if err != nil || after == nil {
		return done, err
	}
	if !after.DeletedAt.IsZero() {
		if err := b.Set(s.keys.named(nil, kindGone, r.Counter), nil, nil); err != nil {
			return done, fmt.Errorf("delete %q: %w", r.Counter, err)
		}
	}
	return done, b.Merge(key, record{shards: rec.shards, wasReset: true, ResetState: *after}.encode(nil), nil)
}
