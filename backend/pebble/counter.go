package pebble

import (
	"context"
	"fmt"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
)

// RaiseCounter writes the record in a synced batch: whoever is told stays told.
func (s *Store) RaiseCounter(ctx context.Context, counter string, shards int) (named int, err error) {
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

// ResetCounter merges the new record over the old one, with its marker, in a synced batch.
// A fold that raises meanwhile may come before or after it.
func (s *Store) ResetCounter(ctx context.Context, r admin.Reset) (done admin.Done, err error) {
	err = s.change(ctx, func(b *pebbledb.Batch, now time.Time) error {
		m, found, err := s.findMarkerLocked(r.ID)
		if found || err != nil {
			done = admin.DoneOf(m.Fingerprint, m.Fold)
			return err
		}
		if done, err = s.applyReset(b, &r, now); err != nil {
			return err
		}
		m = aggregator.Marker{ID: r.ID, At: r.At}
		m.Fingerprint, m.Fold = done.Marker()
		added, err := s.insertMarkersLocked(b, []aggregator.Marker{m})
		for _, e := range added {
			s.addEpochLocked(e)
		}
		return err
	})
	if err != nil {
		return admin.Done{}, err
	}
	return done, nil
}

// change commits what plan puts into a batch. One at a time is in plan, and no fold with
// markers, and nothing is swept; now is the time that views are stamped with.
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
	if err := s.atHome(); err != nil { // before a marker is found that is gone as well
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
	return s.commit(b)
}

func (s *Store) applyReset(b *pebbledb.Batch, r *admin.Reset, now time.Time) (admin.Done, error) {
	key := s.keys.named(nil, kindRecord, r.Counter)
	rec, exists, err := getRecord(s.db, key)
	if err != nil {
		return admin.Done{}, err
	}
	var found *admin.Record
	if exists {
		found = &rec.Record
	}
	after, done, err := r.Apply(found, now)
	if err != nil || after == nil {
		return done, err
	}
	if err := s.raiseFormat(b); err != nil {
		return done, err
	}
	if !after.DeletedAt.IsZero() {
		if err := b.Set(s.keys.named(nil, kindGone, r.Counter), nil, nil); err != nil {
			return done, fmt.Errorf("delete %q: %w", r.Counter, err)
		}
	}
	return done, b.Merge(key, record{shards: rec.shards, wasReset: true, Record: *after}.encode(nil), nil)
}
