package datastore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
)

// maxRests is the most rests of one SetRests. Its transaction then reads 101 entities and writes 200:
// half a fold.
const maxRests = 100

// restPrefix begins the names of a piece's rests. Behind it is the group.
func restPrefix(p *store.Piece) string {
	return indexPrefix(p.Index) + strconv.Itoa(p.ID) + ":"
}

func restRef(p *store.Piece, group string) ref { return ref{kindRest, restPrefix(p) + group} }

// A restParts is a sum of rests, in two properties of the group's record: the lower 32 bits and the upper ones
// of each rest, summed apart. Increments of these never reach an end of int64, where they would have no
// effect: the rests of MaxPieces pieces sum to less than 2^63 in both. So the record's rest is exact at any
// time, and needs no read.
type restParts struct{ low, high int64 }

const (
	restLow  = "rest"
	restHigh = "rest_high"

	// stuckHigh is the upper part of a rest at an end of int64, which means an overflow. Any sum
	// with it is beyond int64.
	stuckHigh = 1 << 50
)

func partsOf(rest int64) restParts {
	if saturated(rest) {
		return restParts{0, stuckHigh}
	}
	return restParts{rest & (1<<32 - 1), rest >> 32}
}

func (a restParts) minus(b restParts) restParts { return restParts{a.low - b.low, a.high - b.high} }

// total is the sum of the rests.
func (a restParts) total() (rest int64, overflow bool) {
	high := a.high + a.low>>32
	if rest = high<<32 | a.low&(1<<32-1); rest>>32 != high || saturated(rest) {
		return 0, true
	}
	return rest, false
}

// SetRests sets a piece's part of groups in one transaction that reads the piece and the rests that it had. It
// moves the record of each group by the difference, with increments and without a look: so it does not
// wait for the aggregators that grow the record, nor for workers with other pieces of the group.
//
//   - A worker past its lease: another one has changed the piece, so this one finds it changed, or its
//     commit fails.
//   - A repeat, also of a call that was maybe applied: it finds the rests that it sets, and moves nothing.
//   - A fold, also one in flight: it writes shards of the group, and neither rests nor the record.
//   - A growth: it writes other properties of the record by Maximum, before or after.
//   - A sweep, a reset or a growth by a person: these read the record in a transaction, which fails if
//     the rest moves meanwhile.
//   - A sweep of a deleted group takes the record with its rest, which its baseline has. A later difference
//     makes a new record with the difference alone, as a later fold does.
func (s *Store) SetRests(ctx context.Context, p *store.Piece, rests []store.GroupRest) error {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if len(rests) > maxRests {
		return fmt.Errorf("%w: %d rests (limit: %d)", store.ErrRefused, len(rests), maxRests)
	}
	refs := []ref{refOfPiece(p)}
	for i := range rests {
		refs = append(refs, restRef(p, rests[i].Group))
	}
	err = s.readModifyWrite(ctx, refs, func(found map[ref]*pb.Entity, _ time.Time) (mutations []*pb.Mutation, err error) {
		if err := isStored(p, found[refs[0]]); err != nil {
			return nil, err
		}
		for i := range rests {
			if mutations, err = s.setRest(mutations, refs[1+i], found[refs[1+i]], &rests[i]); err != nil {
				return nil, err
			}
		}
		return mutations, nil
	})
	if err != nil {
		return err
	}
	return s.confirm(ctx, "set the rests of groups")
}

// setRest adds the mutations that make a rest the one of its piece, and move the group's record.
func (s *Store) setRest(mutations []*pb.Mutation, r ref, e *pb.Entity, set *store.GroupRest) ([]*pb.Mutation, error) {
	had, err := restOf(e)
	if err != nil || had == set.Rest {
		return mutations, err
	}
	if set.Rest == 0 {
		mutations = append(mutations, s.remove(r))
	} else {
		mutations = append(mutations, s.replace(r, map[string]*pb.Value{"rest": integer(set.Rest)}))
	}
	moved := partsOf(set.Rest).minus(partsOf(had))
	m := s.growth(store.Growth{Counter: set.Group, Shards: s.Limits().Shards}, now().UnixMicro())
	// Increments, not a set: other pieces move the same record.
	m.PropertyTransforms = append(m.PropertyTransforms, plus(restLow, moved.low), plus(restHigh, moved.high))
	return append(mutations, m), nil
}

// restOf reads a piece's part of a group; 0 if there is none.
func restOf(e *pb.Entity) (int64, error) {
	if e == nil {
		return 0, nil
	}
	f := fields{entity: e}
	return f.integer("rest"), f.err
}

// RestsOf queries the names of rests.
func (s *Store) RestsOf(ctx context.Context, p *store.Piece, after string, limit int) (rests []store.GroupRest, err error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	prefix := restPrefix(p)
	sp := prefixed(kindRest, prefix)
	sp.from, sp.past = "", prefix+after
	_, err = s.query(ctx, nil, sp, limit, func(e *pb.Entity) error {
		rest, err := restOf(e)
		rests = append(rests, store.GroupRest{Group: refOf(e.GetKey()).name[len(prefix):], Rest: rest})
		return err
	})
	if err != nil {
		return nil, s.explain("list the rests of a piece", err)
	}
	return rests, s.confirm(ctx, "list the rests of a piece")
}
