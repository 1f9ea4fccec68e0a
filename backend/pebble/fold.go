package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/countmill/countmill/store"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/wire"
)

// Fold applies the commit in one synced batch. It looks at ctx before the commit only: if ctx has ended
// by then, the error is store.ErrNotApplied. After that Fold waits for the disk without a limit. If the
// directory is removed or moved during the sync, Fold waits until it is back or the store closes. The
// store.CommitResult is zero: this store's time is the machine's, and more shards make it no faster.
func (s *Store) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	if err := s.enter(); err != nil {
		return store.CommitResult{}, notApplied(err)
	}
	defer s.closing.RUnlock()
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	// ChangeRules has the lock for writing: after it, no commit by older rules is applied.
	if oldest := s.settings.oldest.Load(); c.Rules < oldest {
		return store.CommitResult{}, fmt.Errorf("%w: by the settings %d, and an index or a journal needs %d", store.ErrOutdated, c.Rules, oldest)
	}
	if len(c.Markers) == 0 {
		return store.CommitResult{}, s.foldUnmarked(ctx, c)
	}
	if err := s.lockMarking(ctx); err != nil {
		return store.CommitResult{}, notApplied(err)
	}
	defer s.unlockMarking()
	return store.CommitResult{}, s.foldMarkedLocked(ctx, c)
}

// foldUnmarked needs no lock: additions commute, and Pebble syncs concurrent batches together.
func (s *Store) foldUnmarked(ctx context.Context, c *store.Commit) error {
	b := s.newBatch(c)
	defer b.Close()
	if err := s.mergeCommit(b, c); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return notApplied(err)
	}
	// Fold answers when the batch is on disk.
	return s.commitSums(b)
}

// foldMarkedLocked checks and inserts markers. It holds the lock until the batch is synced: other folds
// acknowledge messages because of a marker that they see, so that marker must survive a crash.
func (s *Store) foldMarkedLocked(ctx context.Context, c *store.Commit) error {
	if err := s.sweepDailyLocked(); err != nil {
		return notApplied(err)
	}
	b := s.newBatch(c)
	defer b.Close()
	added, err := s.insertMarkersLocked(b, c.Markers)
	if err != nil {
		return err
	}
	// Markers and sums are one batch: after a crash the disk has both or neither.
	if err := s.mergeCommit(b, c); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return notApplied(err)
	}
	// Before the commit: its outcome may be unknown, and the epoch must be listed if it succeeded.
	for _, e := range added {
		s.addEpochLocked(e)
	}
	return s.commitSums(b)
}

// notApplied wraps an error that came before the commit began.
func notApplied(err error) error { return fmt.Errorf("%w: %w", store.ErrNotApplied, err) }

// newBatch allocates a batch with room for the whole commit.
func (s *Store) newBatch(c *store.Commit) *pebbledb.Batch {
	const overhead = 2 + 3 + 1 + 16 // bytes of an entry in a batch
	size := len(c.Markers) * (len(s.keys.prefix) + 19 + markerLen + overhead)
	for i := range c.Adds {
		size += s.keys.shardLen(c.Adds[i].Counter) + overhead
	}
	for i := range c.Grouped {
		size += 2 + 3*len(c.Grouped[i].Indexes) // mostly
	}
	for i := range c.Buckets {
		size += s.keys.seriesLen(c.Adds[c.Buckets[i].Add].Counter) + 8 + overhead
	}
	for i := range c.Growths {
		size += s.keys.namedLen(c.Growths[i].Counter) + overhead
	}
	for i := range c.Records {
		size += len(c.Records[i].Data) + 100
	}
	return s.db.NewBatchWithSize(size + 128)
}

// mergeCommit adds the deltas and the growths. It writes each kind in key order: neighbouring keys in
// sequence cost a memtable half as much.
func (s *Store) mergeCommit(b *pebbledb.Batch, c *store.Commit) error {
	if err := s.mergeAdds(b, c); err != nil {
		return err
	}
	// Totals and series are one batch: after a crash a sum is in both or in neither.
	if err := s.mergeBuckets(b, c); err != nil {
		return err
	}
	// Evidence is in the same batch: there is none of a commit that was not applied.
	if err := s.setJournal(b, c); err != nil {
		return err
	}
	for i := range c.Growths {
		r := &c.Growths[i]
		op := b.MergeDeferred(s.keys.namedLen(r.Counter), 8)
		s.keys.named(op.Key[:0], kindRecord, r.Counter)
		encodeRecord(op.Value[:0], r.Shards)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	return nil
}

// mergeAdds adds the deltas. An add with buckets counts as bucketed too, and one in groups as grouped.
func (s *Store) mergeAdds(b *pebbledb.Batch, c *store.Commit) error {
	bucket, grouped := 0, c.Grouped
	var space [64]byte
	for i := range c.Adds {
		a, bucketed := &c.Adds[i], false
		for bucket < len(c.Buckets) && c.Buckets[bucket].Add == i {
			bucketed = true
			bucket++
		}
		var indexes []int64
		if len(grouped) > 0 && grouped[0].Add == i {
			indexes, grouped = grouped[0].Indexes, grouped[1:]
		}
		value := appendOperand(space[:0], a.Delta, bucketed, indexes)
		op := b.MergeDeferred(s.keys.shardLen(a.Counter), len(value))
		s.keys.shard(op.Key[:0], a.Order, a.Counter, a.Shard)
		copy(op.Value, value)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	return nil
}

// insertMarkersLocked returns the epochs that are new with these markers.
func (s *Store) insertMarkersLocked(b *pebbledb.Batch, markers []store.Marker) (added []epoch, err error) {
	var key, value []byte
	for i := range markers {
		m := &markers[i]
		found, err := s.findMarkerLocked(m.ID)
		if err != nil {
			return nil, notApplied(err)
		}
		if found != nil {
			return nil, fmt.Errorf("%w: %s", store.ErrMarkerExists, m.ID)
		}
		e, err := epochOf(m.At)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", store.ErrRefused, err)
		}
		if len(added) == 0 || added[len(added)-1] != e {
			added = append(added, e)
		}
		key, value = s.keys.marker(key[:0], e, m.ID), encodeMarker(value[:0], m)
		if err := b.Set(key, value, nil); err != nil {
			return nil, err
		}
	}
	return added, nil
}

// Applied returns the markers that exist. It first waits for a running fold with markers, so every
// marker that it returns is on disk.
func (s *Store) Applied(ctx context.Context, ids []wire.PartID) ([]store.Marker, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	// A marker can be read before it is synced, so wait for the fold that holds the lock.
	if err := s.lockMarking(ctx); err != nil {
		return nil, err
	}
	defer s.unlockMarking()
	var found []store.Marker
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		value, err := s.findMarkerLocked(id)
		if err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		m, err := decodeMarker(id, value)
		if err != nil {
			return nil, err
		}
		found = append(found, m)
	}
	return found, s.isGuarded()
}

// findMarkerLocked looks in every epoch, because a copy may carry another time. With the default window
// there are about four. It returns a copy of the value, or nil if the marker does not exist.
func (s *Store) findMarkerLocked(id wire.PartID) ([]byte, error) {
	var space [160]byte
	for i := len(s.epochs) - 1; i >= 0; i-- {
		value, closer, err := s.db.Get(s.keys.marker(space[:0], s.epochs[i], id))
		if errors.Is(err, pebbledb.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return bytes.Clone(value), closer.Close()
	}
	return nil, nil
}

func (s *Store) lockMarking(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.marking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) unlockMarking() { <-s.marking }
