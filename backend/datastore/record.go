package datastore

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/wire"
)

// Applied returns the markers that exist. A marker whose TTL has passed is found until it is removed.
func (s *Store) Applied(ctx context.Context, ids []wire.PartID) ([]store.Marker, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if len(ids) > maxKeys {
		return nil, tooManyKeys(len(ids))
	}
	refs := make([]ref, len(ids))
	for i, id := range ids {
		refs[i] = ref{kindApplied, id.String()}
	}
	found, err := s.lookupAll(ctx, refs)
	if err != nil {
		return nil, s.explain("look up markers", err)
	}
	markers := make([]store.Marker, 0, len(found))
	for _, e := range found {
		m, err := markerOf(e)
		if err != nil {
			return nil, err
		}
		markers = append(markers, m)
	}
	return markers, nil
}

func markerOf(e *pb.Entity) (store.Marker, error) {
	f := fields{entity: e}
	m := store.Marker{ExpireAt: f.instant("expire_at")}
	name := refOf(e.GetKey()).name
	if n, err := hex.Decode(m.ID[:], []byte(name)[:min(len(name), 2*len(m.ID))]); err != nil || n != len(m.ID) {
		return m, fmt.Errorf("marker %q is not a part's id", name)
	}
	if c := m.ID.Class(); c != wire.ResetClass && c != wire.SequenceClass { // their markers have other contents
		m.Fingerprint, m.Fold = wire.Fingerprint(f.integer("fingerprint")), uint64(f.integer("fold"))
	}
	return m, f.err
}

func tooManyKeys(n int) error {
	return fmt.Errorf("%w: %d keys in a look-up (limit: %d)", store.ErrRefused, n, maxKeys)
}

// Shards returns the current number of shards of each counter.
func (s *Store) Shards(ctx context.Context, counters []string) ([]int, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if len(counters) > maxKeys {
		return nil, tooManyKeys(len(counters))
	}
	refs := make([]ref, len(counters))
	for i, counter := range counters {
		refs[i] = ref{kindCounter, counter}
	}
	found, err := s.lookupAll(ctx, refs)
	if err != nil {
		return nil, s.explain("look up records", err)
	}
	shards := make([]int, len(counters))
	for i, r := range refs {
		if e := found[r]; e != nil {
			rec, err := recordOf(e)
			if err != nil {
				return nil, err
			}
			if rec.DeletedAt.IsZero() {
				shards[i] = int(rec.shards)
			}
		}
	}
	return shards, nil
}

// Grow writes records in the order of their names, as many at a time as a commit takes.
func (s *Store) Grow(ctx context.Context, growths []store.Growth) error {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if len(growths) > maxKeys {
		return tooManyKeys(len(growths))
	}
	sorted := slices.Clone(growths)
	slices.SortFunc(sorted, func(a, b store.Growth) int { return strings.Compare(a.Counter, b.Counter) })
	for lot := range slices.Chunk(sorted, maxEntities) {
		if err := s.grow(ctx, lot); err != nil {
			return err
		}
	}
	return nil
}

// grow sets the larger number of shards and the earlier time, and removes a deletion. It reads nothing.
func (s *Store) grow(ctx context.Context, growths []store.Growth) error {
	mutations := make([]*pb.Mutation, len(growths))
	created := now().UnixMicro()
	for i, r := range growths {
		mutations[i] = s.growth(r, created)
	}
	resp, err := s.commitOnce(ctx, mutations)
	if err != nil {
		return s.explain("grow", err)
	}
	return checkResults(mutations, resp)
}

// growth is the mutation of a record for grow.
func (s *Store) growth(r store.Growth, created int64) *pb.Mutation {
	return &pb.Mutation{
		Operation:    &pb.Mutation_Upsert{Upsert: &pb.Entity{Key: s.key(ref{kindCounter, r.Counter})}},
		PropertyMask: &pb.PropertyMask{Paths: []string{"deleted_at"}}, // without the mask the upsert would clear the record first
		PropertyTransforms: []*pb.PropertyTransform{
			{Property: "shards", TransformType: &pb.PropertyTransform_Maximum{Maximum: integer(int64(r.Shards))}},
			{Property: "created", TransformType: &pb.PropertyTransform_Minimum{Minimum: integer(created)}},
		},
	}
}
