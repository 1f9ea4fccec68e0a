package datastore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A record is a CountmillCounter.
type record struct {
	shards    int64
	remainder int64 // of a group
	overflow  bool  // of the remainder
	store.ResetState
}

func recordOf(e *pb.Entity) (record, error) {
	f := fields{entity: e}
	r := record{shards: f.integer("shards")}
	if f.has("reset_at") {
		r.Baseline, r.ResetAt = int128.Of(f.integer("baseline")), f.instant("reset_at")
	}
	if f.has("deleted_at") {
		r.DeletedAt = f.instant("deleted_at")
	}
	if f.has(remainderLow) {
		r.remainder, r.overflow = remainderParts{f.integer(remainderLow), f.integer(remainderHigh)}.total()
	}
	return r, f.err
}

func (r record) reset() store.ResetState {
	return store.ResetState{Baseline: r.Baseline, ResetAt: r.ResetAt, DeletedAt: r.DeletedAt}
}

// GrowCounter uses a transaction, because it returns the number of shards after the change. Like
// ResetCounter it also works with ReadOnly: neither uses transforms.
func (s *Store) GrowCounter(ctx context.Context, counter string, shards int) (named int, err error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return 0, certain(err)
	}
	defer cancel()
	r := ref{kindCounter, counter}
	err = s.readModifyWrite(ctx, []ref{r}, func(found map[ref]*pb.Entity, _ time.Time) ([]*pb.Mutation, error) {
		m, n, err := s.growFound(r, found[r], shards)
		if named = n; m == nil || n > shards || err != nil {
			return nil, err
		}
		return []*pb.Mutation{m}, nil
	})
	if err != nil {
		return 0, certain(err)
	}
	return named, s.confirm(ctx, "grow")
}

// growFound makes the mutation that grows a record, or nil if the record has enough shards. It also
// returns the number of shards after the change.
func (s *Store) growFound(r ref, e *pb.Entity, shards int) (*pb.Mutation, int, error) {
	if e == nil {
		return s.replace(r, map[string]*pb.Value{"shards": integer(int64(shards)), "created": integer(now().UnixMicro())}), shards, nil
	}
	rec, err := recordOf(e)
	if err != nil {
		return nil, 0, err
	}
	named := max(int(rec.shards), shards)
	if named == int(rec.shards) && rec.DeletedAt.IsZero() {
		return nil, named, nil
	}
	return s.rewrite(e, map[string]*pb.Value{"shards": integer(int64(named)), "deleted_at": nil}), named, nil
}

// rewrite changes properties of an entity that this transaction has read. A nil value removes the
// property.
func (s *Store) rewrite(e *pb.Entity, changes map[string]*pb.Value) *pb.Mutation {
	properties := maps.Clone(e.GetProperties())
	for name, v := range changes {
		if properties[name] = v; v == nil {
			delete(properties, name)
		}
	}
	return s.replace(refOf(e.GetKey()), properties)
}

// ResetCounter makes one attempt at a transaction on the record and the marker.
func (s *Store) ResetCounter(ctx context.Context, r store.ResetRequest) (done store.ResetResult, err error) {
	if r.ID.Class() != wire.ResetClass {
		return done, certain(fmt.Errorf("%w: %s is not the id of a reset", store.ErrRefused, r.ID))
	}
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return done, certain(err)
	}
	defer cancel()
	counter, marker := ref{kindCounter, r.Counter}, ref{kindApplied, r.ID.String()}
	err = s.readModifyWrite(ctx, []ref{counter, marker}, func(found map[ref]*pb.Entity, when time.Time) (mutations []*pb.Mutation, err error) {
		if e := found[marker]; e != nil {
			done, err = doneOf(e)
			return nil, err
		}
		if mutations, done, err = s.applyReset(&r, found[counter], when); err != nil {
			return nil, err
		}
		return append(mutations, s.insertDone(&r, done)), nil
	})
	if err != nil {
		return store.ResetResult{}, certain(err)
	}
	return done, s.confirm(ctx, "reset")
}

func (s *Store) applyReset(r *store.ResetRequest, e *pb.Entity, when time.Time) ([]*pb.Mutation, store.ResetResult, error) {
	var found *store.ResetState
	if e != nil {
		rec, err := recordOf(e)
		if err != nil {
			return nil, store.ResetResult{}, err
		}
		found = &rec.ResetState
	}
	after, done, err := r.Apply(found, when)
	if err != nil || after == nil {
		return nil, done, err
	}
	properties := map[string]*pb.Value{"baseline": integer(near(after.Baseline)), "reset_at": instant(after.ResetAt)}
	if !after.DeletedAt.IsZero() {
		properties["deleted_at"] = indexedInstant(after.DeletedAt)
	}
	return []*pb.Mutation{s.rewrite(e, properties)}, done, nil
}

// insertDone inserts the marker of a reset.
func (s *Store) insertDone(r *store.ResetRequest, done store.ResetResult) *pb.Mutation {
	k := ref{kindApplied, r.ID.String()}
	properties := map[string]*pb.Value{
		"removed": integer(near(done.Removed)), "reset_at": instant(done.At), "expire_at": instant(r.ExpireAt),
	}
	return s.insert(k, properties)
}

func doneOf(e *pb.Entity) (store.ResetResult, error) {
	f := fields{entity: e}
	done := store.ResetResult{Removed: int128.Of(f.integer("removed")), At: f.instant("reset_at")}
	return done, f.err
}

// certain marks errors after which nothing was applied.
func certain(err error) error {
	if errors.Is(err, store.ErrDeployment) || errors.Is(err, store.ErrRefused) {
		return fmt.Errorf("%w: %w", countmill.ErrUnavailable, err)
	}
	return err
}
