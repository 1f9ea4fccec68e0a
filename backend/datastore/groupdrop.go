package datastore

import (
	"context"
	"fmt"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// remainderLots is the most commits with which one DropGroups removes remainders.
const remainderLots = 10

// DropGroups removes groups with transactions that read the meta record: each finds that the index is still
// being deleted, or its commit fails. So a worker that was stopped for any time removes no group of a
// later index. A group's record goes last, so a call that was cut off is continued by the next one.
// Nobody folds to the groups or grows them after Index.Since, and a sweep beside it removes entities of a deleted
// group that would go anyway. A move of a series beside it makes a day of the archive, or finds no shard any more: so
// the days are listed when the shards are gone.
func (s *Store) DropGroups(ctx context.Context, x *store.Index, limit int) (dropped int, err error) {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return 0, err
	}
	defer cancel()
	groups, err := s.groupsOf(ctx, x, min(limit, maxKeys))
	if err != nil {
		return 0, s.explain("list groups", err)
	}
	for _, list := range []func(context.Context, []*pb.Entity) ([]ref, error){shardsOfGroups, s.daysAndRecords} {
		refs, err := list(ctx, groups)
		if err != nil {
			return 0, s.explain("list groups", err)
		}
		if err := s.dropLots(ctx, x, refs); err != nil {
			return 0, err
		}
	}
	if dropped = len(groups); dropped == 0 {
		if dropped, err = s.dropRemainders(ctx, x); err != nil {
			return 0, s.explain("remove remainders", err)
		}
	}
	return dropped, s.confirm(ctx, "remove groups")
}

// dropLots removes entities, and looks at least once whether the index is being deleted.
func (s *Store) dropLots(ctx context.Context, x *store.Index, refs []ref) error {
	for first := true; first || len(refs) > 0; first = false {
		lot := refs[:min(len(refs), maxEntities)]
		refs = refs[len(lot):]
		if err := s.dropLot(ctx, x, lot); err != nil {
			return err
		}
	}
	return nil
}

// dropLot removes entities in one transaction, if the index is being deleted.
func (s *Store) dropLot(ctx context.Context, x *store.Index, refs []ref) error {
	return s.transaction(ctx, func(tx []byte) (mutations []*pb.Mutation, err error) {
		if err := s.checkEnded(ctx, tx, x); err != nil {
			return nil, err
		}
		for _, r := range refs {
			mutations = append(mutations, s.remove(r))
		}
		return mutations, nil
	})
}

func (s *Store) checkEnded(ctx context.Context, tx []byte, x *store.Index) error {
	m, err := s.metaIn(ctx, tx)
	if err == nil && !m.settings.Rules.Ended(x) {
		err = fmt.Errorf("index %q with the number %d is not being deleted: %w", x.Name, x.Number, store.ErrChanged)
	}
	return err
}

// shardsOfGroups returns the shards that the records of groups name.
func shardsOfGroups(_ context.Context, groups []*pb.Entity) (refs []ref, err error) {
	for _, e := range groups {
		name := refOf(e.GetKey()).name
		rec, err := recordOf(e)
		if err != nil {
			return nil, err
		}
		for n := range min(int(rec.shards), countmill.MaxShards) {
			refs = append(refs, shardRef(wire.ShardHash(name, n), name, n))
		}
	}
	return refs, nil
}

// daysAndRecords returns the days of the series of groups, and then their records.
func (s *Store) daysAndRecords(ctx context.Context, groups []*pb.Entity) (refs []ref, err error) {
	var records []ref
	for _, e := range groups {
		r := refOf(e.GetKey())
		days, err := s.daysOf(ctx, nil, r.name)
		if err != nil {
			return nil, err
		}
		if refs = append(refs, days...); len(days) > maxEntities {
			continue // there may be more days: the next call finds the record
		}
		records = append(records, r)
	}
	return append(refs, records...), nil
}

// groupsOf returns the records of up to limit groups. Among the names with the prefix of the groups can be
// the overflow groups of other indexes.
func (s *Store) groupsOf(ctx context.Context, x *store.Index, limit int) (found []*pb.Entity, err error) {
	for _, prefix := range x.GroupPrefixes() {
		sp, _ := prefixSpan(prefix, "")
		_, err := s.query(ctx, nil, sp, limit+store.MaxIndexes, func(e *pb.Entity) error {
			if len(found) < limit && x.HasGroup(refOf(e.GetKey()).name) {
				found = append(found, e)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// dropRemainders removes remainders of the index, and returns how many. It needs no look at the settings: no later
// index has the number in their names.
func (s *Store) dropRemainders(ctx context.Context, x *store.Index) (dropped int, err error) {
	for range remainderLots {
		var deletes []*pb.Mutation
		_, err := s.keysOf(ctx, nil, prefixed(kindRemainder, indexPrefix(x.Number)), maxKeys, func(r ref) {
			deletes = append(deletes, s.remove(r))
		})
		if err != nil || len(deletes) == 0 {
			return dropped, err
		}
		if err := s.commitLots(ctx, deletes); err != nil {
			return dropped, err
		}
		dropped += len(deletes)
	}
	return dropped, nil
}
