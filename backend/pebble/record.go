package pebble

import (
	"context"
	"errors"

	"github.com/countmill/countmill/store"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// Shards returns the current number of shards of each counter.
func (s *Store) Shards(ctx context.Context, counters []string) ([]int, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	shards := make([]int, len(counters))
	var key []byte
	for i, counter := range counters {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		key = s.keys.named(key[:0], kindRecord, counter)
		r, _, err := getRecord(s.db, key)
		if err != nil {
			return nil, err
		}
		if r.DeletedAt.IsZero() {
			shards[i] = r.shards
		}
	}
	return shards, ctx.Err()
}

// Grow merges records. It does not sync: the write-ahead log keeps the order of commits, and each log
// is synced before the next one begins. So a fold that was called later survives a crash only together
// with the growth before it.
func (s *Store) Grow(ctx context.Context, growths []store.Growth) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.closing.RUnlock()
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	b := s.db.NewBatch()
	defer b.Close()
	var key, value []byte
	for _, r := range growths {
		key, value = s.keys.named(key[:0], kindRecord, r.Counter), encodeRecord(value[:0], r.Shards)
		if err := b.Merge(key, value, nil); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	defer s.changes.Add(1) // deleted counters may exist again
	// The record is in the log before Grow returns, and so before the fold that needs it.
	return b.Commit(pebbledb.NoSync)
}

// get decodes the value of a key.
func get[T any](from pebbledb.Reader, key []byte, decode func([]byte) (T, error)) (value T, exists bool, err error) {
	bytes, closer, err := from.Get(key)
	if errors.Is(err, pebbledb.ErrNotFound) {
		return value, false, nil
	}
	if err != nil {
		return value, false, err
	}
	value, err = decode(bytes)
	return value, true, errors.Join(err, closer.Close())
}

func getRecord(from pebbledb.Reader, key []byte) (record, bool, error) {
	return get(from, key, decodeRecord)
}

func getSum(from pebbledb.Reader, key []byte) (int128, bool, error) { return get(from, key, decodeSum) }

func getShard(from pebbledb.Reader, key []byte) (shardSum, bool, error) {
	return get(from, key, decodeShard)
}
