package protocol

import (
	"context"
	"slices"
	"strings"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// recordFields are all fields of a record.
var recordFields = []engine.FieldID{fieldShards, fieldDeletedAt, fieldResetAt, fieldBaseline, fieldRemainder}

// growth makes the change that grows a record and ends its deletion. It needs no read.
func growth(counter string, shards int) *engine.Change {
	return &engine.Change{Key: recordKey(counter), Unset: []engine.FieldID{fieldDeletedAt}, Max: []engine.Field{field(fieldShards, int64(shards))}}
}

// Shards returns the current number of shards of each counter.
func (s *Store) Shards(ctx context.Context, counters []string) ([]int, error) {
	keys, shards := make([]engine.Key, len(counters)), make([]int, len(counters))
	for i, counter := range counters {
		keys[i] = recordKey(counter)
	}
	v := s.view()
	defer v.Close()
	rows, err := s.get(ctx, v, keys, fieldShards, fieldDeletedAt)
	for i := range rows {
		if rows[i].Int64(fieldDeletedAt) == 0 {
			shards[i] = int(rows[i].Int64(fieldShards))
		}
	}
	return shards, err
}

// Grow writes records. A soft commit is enough: no later fold survives without it.
func (s *Store) Grow(ctx context.Context, growths []store.Growth) error {
	defer s.changes.Add(1) // deleted counters may exist again
	sorted := slices.Clone(growths)
	slices.SortFunc(sorted, func(a, b store.Growth) int { return strings.Compare(a.Counter, b.Counter) })
	changes := make([]engine.Change, len(sorted))
	for i, r := range sorted {
		changes[i] = *growth(r.Counter, r.Shards)
	}
	return s.commit(ctx, true, changes)
}

// GrowCounter uses a transaction, because it returns the number of shards after the change.
func (s *Store) GrowCounter(ctx context.Context, counter string, shards int) (named int, err error) {
	defer s.changes.Add(1)
	key := recordKey(counter)
	err = s.transact(ctx, false, func(tx engine.Tx) error {
		rows, err := s.get(ctx, tx, []engine.Key{key}, fieldShards, fieldDeletedAt)
		if err != nil {
			return err
		}
		have := int(rows[0].Int64(fieldShards))
		named = max(have, shards)
		if have < shards || have == shards && rows[0].Int64(fieldDeletedAt) != 0 {
			tx.Change(growth(counter, shards))
		}
		return nil
	})
	if err != nil {
		return 0, certain(err)
	}
	return named, nil
}
