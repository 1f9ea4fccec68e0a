package datastore

import (
	"context"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const kindSequence = "CountmillSequence"

// sequenceRef returns the key of a sequence. It begins with a hash: sequences such as user:1, user:2
// would otherwise be written in one small range of keys.
func sequenceRef(name string) ref {
	return ref{kindSequence, string(hashed(wire.ShardHash(name, 0), name, 0))}
}

func sequenceOf(e *pb.Entity) (state store.SequenceState, err error) {
	if e == nil {
		return state, nil
	}
	f := fields{entity: e}
	state.Last = f.integer("last")
	if f.has("deleted_at") {
		state.Deleted = f.instant("deleted_at")
	}
	return state, f.err
}

func (s *Store) sequenceMutation(name string, state store.SequenceState) *pb.Mutation {
	return s.replace(sequenceRef(name), map[string]*pb.Value{"last": integer(state.Last), "deleted_at": instant(state.Deleted)})
}

// NextValues makes one attempt at a transaction on the sequence's entity and the markers. Like
// ResetCounter it also works with ReadOnly.
func (s *Store) NextValues(ctx context.Context, sequence string, takes []store.Take) (given []store.Given, err error) {
	if err := store.CheckTakes(takes); err != nil {
		return nil, err
	}
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, certain(err)
	}
	defer cancel()
	refs := []ref{sequenceRef(sequence)}
	for i := range takes {
		refs = append(refs, ref{kindApplied, takes[i].ID.String()})
	}
	err = s.readModifyWrite(ctx, refs, func(found map[ref]*pb.Entity, _ time.Time) (mutations []*pb.Mutation, err error) {
		given, mutations, err = s.give(sequence, takes, refs, found)
		return mutations, err
	})
	if err != nil {
		return nil, certain(err)
	}
	return given, s.confirm(ctx, "give values of a sequence")
}

// give makes the values and the mutations of a transaction that has found the entities of refs: the
// sequence's, and the marker of each take.
func (s *Store) give(sequence string, takes []store.Take, refs []ref, found map[ref]*pb.Entity) (given []store.Given, mutations []*pb.Mutation, err error) {
	state, err := sequenceOf(found[refs[0]])
	if err != nil {
		return nil, nil, err
	}
	given = make([]store.Given, len(takes))
	for i := range takes {
		t, marker := &takes[i], refs[i+1]
		if e := found[marker]; e != nil {
			if given[i], err = givenOf(e); err != nil {
				return nil, nil, err
			}
			continue
		}
		if given[i] = state.Give(t.Count); given[i].Count > 0 {
			mutations = append(mutations, s.insertGiven(marker, given[i], t))
		}
	}
	if len(mutations) > 0 {
		// Last value and markers are one transaction: nobody finds one without the other.
		mutations = append(mutations, s.sequenceMutation(sequence, state))
	}
	return given, mutations, nil
}

// insertGiven inserts the marker of a take.
func (s *Store) insertGiven(k ref, g store.Given, t *store.Take) *pb.Mutation {
	properties := map[string]*pb.Value{
		"first": integer(g.First), "count": integer(int64(g.Count)), "expire_at": instant(t.ExpireAt),
	}
	return s.insert(k, properties)
}

func givenOf(e *pb.Entity) (store.Given, error) {
	f := fields{entity: e}
	return store.Given{First: f.integer("first"), Count: int(f.integer("count"))}, f.err
}

// Sequence looks the sequence's entity up.
func (s *Store) Sequence(ctx context.Context, sequence string) (store.SequenceState, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return store.SequenceState{}, err
	}
	defer cancel()
	r := sequenceRef(sequence)
	found, err := s.lookupAll(ctx, []ref{r})
	if err != nil {
		return store.SequenceState{}, s.explain("look up a sequence", err)
	}
	return sequenceOf(found[r])
}

// DeleteSequence makes one attempt at a transaction. The entity stays, because it has the last value.
func (s *Store) DeleteSequence(ctx context.Context, sequence string) (before store.SequenceState, err error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return before, certain(err)
	}
	defer cancel()
	r := sequenceRef(sequence)
	err = s.readModifyWrite(ctx, []ref{r}, func(found map[ref]*pb.Entity, when time.Time) ([]*pb.Mutation, error) {
		if before, err = sequenceOf(found[r]); err != nil || !before.Exists() {
			return nil, err
		}
		after := before
		after.Deleted = when
		return []*pb.Mutation{s.sequenceMutation(sequence, after)}, nil
	})
	if err != nil {
		return store.SequenceState{}, certain(err)
	}
	return before, s.confirm(ctx, "delete a sequence")
}
