package protocol

import (
	"context"
	"fmt"
	"strconv"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

const (
	// groupLot is the number of rows that one transaction of DropGroups removes.
	groupLot = 400
	// remainderLot is the most remainders that one DropGroups removes.
	remainderLot = 10_000
)

// DropGroups removes groups with transactions that read the meta row: each finds that the index is still being deleted. So a
// worker that was stopped for any time removes no group of a later index. A group's record goes last, so a call that was cut off is
// continued by the next one. Nobody folds to the groups or grows them after Index.Since, and a sweep beside it removes rows of a
// deleted group that would go anyway. A move of a series beside it makes a day, or finds no shard any more: so the days are listed
// when the shards are gone.
func (s *Store) DropGroups(ctx context.Context, x *store.Index, limit int) (dropped int, err error) {
	defer s.changes.Add(1)
	records, shards, err := s.groupsOf(ctx, x, min(limit, 1000))
	if err != nil {
		return 0, err
	}
	if err := s.dropLots(ctx, x, shards); err != nil {
		return 0, err
	}
	var days []engine.Key
	for i := range records {
		own, err := s.daysOf(ctx, records[i].Name)
		if err != nil {
			return 0, err
		}
		days = append(days, own...)
	}
	if err := s.dropLots(ctx, x, append(days, records...)); err != nil {
		return 0, err
	}
	if dropped = len(records); dropped == 0 {
		return s.dropRemainders(ctx, x)
	}
	return dropped, nil
}

// dropLots removes rows, and looks at least once whether the index is being deleted.
func (s *Store) dropLots(ctx context.Context, x *store.Index, keys []engine.Key) error {
	most := groupLot
	if s.limits.Rows > 0 {
		most = min(most, s.limits.Rows)
	}
	for first := true; first || len(keys) > 0; first = false {
		lot := keys[:min(len(keys), most)]
		keys = keys[len(lot):]
		err := s.transact(ctx, false, func(tx engine.Tx) error {
			m, err := s.metaIn(ctx, tx)
			if err == nil && !m.Settings.Rules.Ended(x) {
				err = fmt.Errorf("index %q with the number %d is not being deleted: %w", x.Name, x.Number, store.ErrChanged)
			}
			remove(tx, lot...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// groupsOf returns the records of up to limit groups, and the shards that they name. Among the names with the prefix of the groups
// can be the overflow groups of other indexes.
func (s *Store) groupsOf(ctx context.Context, x *store.Index, limit int) (records, shards []engine.Key, err error) {
	v := s.view()
	defer v.Close()
	for _, prefix := range x.GroupPrefixes() {
		for r, err := range s.scan(ctx, v, engine.Range{Kind: kindRecord, Prefix: prefix, Page: limit}, fieldShards) {
			switch {
			case err != nil:
				return nil, nil, err
			case len(records) == limit:
				return records, shards, nil
			case !x.HasGroup(r.Key.Name):
				continue
			}
			key := keyOf(r)
			records = append(records, key)
			for n := range min(int(r.Int64(fieldShards)), countmill.MaxShards) {
				shards = append(shards, s.shardKey(key.Name, n))
			}
		}
	}
	return records, shards, nil
}

// dropRemainders removes remainders of the index, and returns how many. It needs no look at the settings: no later index has the number
// in their names.
func (s *Store) dropRemainders(ctx context.Context, x *store.Index) (dropped int, err error) {
	v := s.view()
	defer v.Close()
	keys, err := v.keys(ctx, engine.Range{Kind: kindRemainder, Prefix: strconv.FormatInt(x.Number, 10) + ":", Page: remainderLot}, remainderLot)
	if err != nil {
		return 0, err
	}
	return len(keys), s.commit(ctx, false, deletes(keys...))
}
