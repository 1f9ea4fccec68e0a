package pebble

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	sums "github.com/countmill/countmill/store/int128"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/wire"
)

// A view is a Pebble snapshot, taken at the first call.
type view struct {
	store    *Store
	snapshot *pebbledb.Snapshot // nil before the first call and after Close
	unsynced []chan struct{}    // commits that the snapshot may show and that may not be synced yet
	done     bool
	at       time.Time
	recorded time.Time // the snapshot has every journal record of this time or an earlier one
	key      []byte
}

// View opens a view. An open view keeps old versions of all data on disk: close it.
func (s *Store) View() store.View { return &view{store: s} }

// pin takes the snapshot, and waits until everything that it shows is on disk: a total that was shown
// must not go back when the process is killed.
func (v *view) pin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if v.done {
		return errors.New("the view is closed")
	}
	if v.snapshot == nil {
		v.take()
	}
	if len(v.unsynced) == 0 {
		return nil // and nothing is written: calls of Series may run beside each other
	}
	var err error
	v.unsynced, err = settled(ctx, v.unsynced)
	return err
}

// take takes the snapshot under a lock. Of two snapshots, the one with the later time therefore shows
// everything that the other one shows.
func (v *view) take() {
	v.store.viewsMu.Lock()
	defer v.store.viewsMu.Unlock()
	// The moment first: a fold that returned before this moment is in the snapshot. A fold that returns
	// between the two may be.
	v.at = v.store.moments.next()
	v.recorded = v.store.journalSettled()
	v.snapshot = v.store.db.NewSnapshot()
	v.store.views[v] = struct{}{}
	v.unsynced = v.store.syncs.underWay()
}

// Lookup answers every key; it defers none.
func (v *view) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	if err := v.store.enter(); err != nil {
		return nil, err
	}
	defer v.store.closing.RUnlock()
	if err := v.pin(ctx); err != nil {
		return nil, err
	}
	values := make([]store.Value, len(keys))
	for i, key := range keys {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var err error
		if values[i], err = v.get(key); err != nil {
			return nil, fmt.Errorf("shard %d of %q: %w", key.Shard, key.Counter, err)
		}
	}
	return values, nil
}

func (v *view) get(key store.Key) (store.Value, error) {
	keys := v.store.keys
	if key.Shard == store.RecordKey {
		v.key = keys.named(v.key[:0], kindRecord, key.Counter)
		r, exists, err := getRecord(v.snapshot, v.key)
		value := store.Value{Exists: exists, Shards: r.shards, Reset: r.reset()}
		if err == nil && countmill.IsGroup(key.Counter) {
			value.Remainder, err = v.remainder(key.Counter)
		}
		return value, err
	}
	v.key = keys.shard(v.key[:0], wire.Order(key.Counter), key.Counter, key.Shard)
	sum, exists, err := getShard(v.snapshot, v.key)
	return store.Value{Exists: exists, Count: sum.count.exact(), Bucketed: sum.bucketed.exact()}, err
}

// remainder is what the counters of a group had counted without it.
func (v *view) remainder(group string) (remainder sums.Int, err error) {
	v.key = v.store.keys.named(v.key[:0], kindRemainder, group)
	sum, _, err := getSum(v.snapshot, v.key)
	return sum.exact(), err
}

// List returns the records in the order of their names.
func (v *view) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	s := v.store
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	if err := v.pin(ctx); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return nil, nil
	}
	var records []store.Record
	err := scan(v.snapshot, s.keys, kindRecord, prefix, after, func(name string, value []byte) (bool, error) {
		r, err := decodeRecord(value)
		if err != nil {
			return false, fmt.Errorf("record of %q: %w", name, err)
		}
		rec := store.Record{Counter: name, Shards: r.shards, Reset: r.reset()}
		if countmill.IsGroup(name) {
			if rec.Remainder, err = v.remainder(name); err != nil {
				return false, fmt.Errorf("record of %q: %w", name, err)
			}
		}
		records = append(records, rec)
		return len(records) < limit, ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// ReadTime returns the moment of the snapshot, or zero before it was taken.
func (v *view) ReadTime() time.Time { return v.at }

// Close releases the snapshot.
func (v *view) Close() {
	v.store.closing.RLock()
	defer v.store.closing.RUnlock()
	v.closeLocked()
}

// closeLocked needs store.closing, for reading or writing.
func (v *view) closeLocked() {
	v.store.viewsMu.Lock()
	defer v.store.viewsMu.Unlock()
	v.done = true
	if v.snapshot == nil {
		return
	}
	delete(v.store.views, v) // The store closes the others when it closes.
	_ = v.snapshot.Close()   // nil, unless the view is closed already
	v.snapshot = nil
}

// scan visits the keys of a kind whose names begin with prefix and come after afterName.
func scan(from pebbledb.Reader, keys keyspace, kind byte, prefix, afterName string, visit func(name string, value []byte) (more bool, err error)) error {
	lower := keys.named(nil, kind, prefix)
	upper := after(lower)
	if afterName != "" && afterName >= prefix {
		lower = append(keys.named(nil, kind, afterName), 0)
	}
	iter, err := from.NewIter(&pebbledb.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	skip := len(keys.prefix) + 1
	more := true
	for ok := iter.First(); ok && more && err == nil; ok = more && iter.Next() {
		var value []byte
		if value, err = iter.ValueAndErr(); err == nil {
			more, err = visit(string(iter.Key()[skip:]), value)
		}
	}
	return errors.Join(err, iter.Close())
}

// scan visits the newest state.
func (s *Store) scan(kind byte, after string, visit func(name string, value []byte) (more bool, err error)) error {
	return scan(s.db, s.keys, kind, "", after, visit)
}
