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

// Grow raises numbers without a look.
func (s *Store) Grow(ctx context.Context, growths []store.Growth) error {
	defer s.changes.Add(1) // deleted counters may exist again
	sorted := slices.Clone(growths)
	slices.SortFunc(sorted, func(a, b store.Growth) int { return strings.Compare(a.Counter, b.Counter) })
	changes := make([]engine.Change, len(sorted))
	for i, r := range sorted {
		changes[i] = *growth(r.Counter, r.Shards)
	}
	return certain(s.commit(ctx, false, changes))
}
