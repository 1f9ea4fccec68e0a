package datastore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/store"
)

// maxRemainders is the most remainders of one SetRemainders. Its transaction then reads 101 entities and writes 200:
// half a fold.
const maxRemainders = 100

// remainderPrefix begins the names of a range's remainders. Behind it is the group.
func remainderPrefix(p *store.IndexRange) string {
	return indexPrefix(p.Index) + strconv.Itoa(p.ID) + ":"
}

func remainderRef(p *store.IndexRange, group string) ref {
	return ref{kindRemainder, remainderPrefix(p) + group}
}

// A remainderParts is a sum of remainders, in two properties of the group's record: the lower 32 bits and the upper ones
// of each remainder, summed apart. Increments of these never reach an end of int64, where they would have no
// effect: the remainders of MaxRanges ranges sum to less than 2^63 in both. So the record's remainder is exact at any
// time, and needs no read.
type remainderParts struct{ low, high int64 }

const (
	remainderLow  = "remainder"
	remainderHigh = "remainder_high"

	// stuckHigh is the upper part of a remainder at an end of int64, which means an overflow. Any sum
	// with it is beyond int64.
	stuckHigh = 1 << 50
)

func partsOf(remainder int64) remainderParts {
	if saturated(remainder) {
		return remainderParts{0, stuckHigh}
	}
	return remainderParts{remainder & (1<<32 - 1), remainder >> 32}
}

func (a remainderParts) minus(b remainderParts) remainderParts {
	return remainderParts{a.low - b.low, a.high - b.high}
}

// total is the sum of the remainders.
func (a remainderParts) total() (remainder int64, overflow bool) {
	high := a.high + a.low>>32
	if remainder = high<<32 | a.low&(1<<32-1); remainder>>32 != high || saturated(remainder) {
		return 0, true
	}
	return remainder, false
}

// SetRemainders sets a range's part of groups in one transaction that reads the range and the remainders that it had. It
// moves the record of each group by the difference, with increments and without a look: so it does not
// wait for the aggregators that grow the record, nor for workers with other ranges of the group.
//
//   - A worker past its lease: another one has changed the range, so this one finds it changed, or its
//     commit fails.
//   - A repeat, also of a call that was maybe applied: it finds the remainders that it sets, and moves nothing.
//   - A fold, also one in flight: it writes shards of the group, and neither remainders nor the record.
//   - A growth: it writes other properties of the record by Maximum, before or after.
//   - A sweep, a reset or a growth by a person: these read the record in a transaction, which fails if
//     the remainder moves meanwhile.
//   - A sweep of a deleted group takes the record with its remainder, which its baseline has. A later difference
//     makes a new record with the difference alone, as a later fold does.
func (s *Store) SetRemainders(ctx context.Context, p *store.IndexRange, remainders []store.GroupRemainder) error {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if len(remainders) > maxRemainders {
		return fmt.Errorf("%w: %d remainders (limit: %d)", store.ErrRefused, len(remainders), maxRemainders)
	}
	refs := []ref{refOfRange(p)}
	for i := range remainders {
		refs = append(refs, remainderRef(p, remainders[i].Group))
	}
	err = s.readModifyWrite(ctx, refs, func(found map[ref]*pb.Entity, _ time.Time) (mutations []*pb.Mutation, err error) {
		if err := isStored(p, found[refs[0]]); err != nil {
			return nil, err
		}
		for i := range remainders {
			if mutations, err = s.setRemainder(mutations, refs[1+i], found[refs[1+i]], &remainders[i]); err != nil {
				return nil, err
			}
		}
		return mutations, nil
	})
	if err != nil {
		return err
	}
	return s.confirm(ctx, "set the remainders of groups")
}

// setRemainder adds the mutations that make a remainder the one of its range, and move the group's record.
func (s *Store) setRemainder(mutations []*pb.Mutation, r ref, e *pb.Entity, set *store.GroupRemainder) ([]*pb.Mutation, error) {
	had, err := remainderOf(e)
	if err != nil || had == near(set.Remainder) {
		return mutations, err
	}
	if near(set.Remainder) == 0 {
		mutations = append(mutations, s.remove(r))
	} else {
		mutations = append(mutations, s.replace(r, map[string]*pb.Value{"remainder": integer(near(set.Remainder))}))
	}
	moved := partsOf(near(set.Remainder)).minus(partsOf(had))
	m := s.growth(store.Growth{Counter: set.Group, Shards: s.Limits().Shards}, now().UnixMicro())
	// Increments, not a set: other ranges move the same record.
	m.PropertyTransforms = append(m.PropertyTransforms, plus(remainderLow, moved.low), plus(remainderHigh, moved.high))
	return append(mutations, m), nil
}

// remainderOf reads a range's part of a group; 0 if there is none.
func remainderOf(e *pb.Entity) (int64, error) {
	if e == nil {
		return 0, nil
	}
	f := fields{entity: e}
	return f.integer("remainder"), f.err
}

// RemaindersOf queries the names of remainders.
func (s *Store) RemaindersOf(ctx context.Context, p *store.IndexRange, after string, limit int) (remainders []store.GroupRemainder, err error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	prefix := remainderPrefix(p)
	sp := prefixed(kindRemainder, prefix)
	sp.from, sp.past = "", prefix+after
	_, err = s.query(ctx, nil, sp, limit, func(e *pb.Entity) error {
		remainder, err := remainderOf(e)
		remainders = append(remainders, store.GroupRemainder{Group: refOf(e.GetKey()).name[len(prefix):], Remainder: exact(remainder, saturated(remainder))})
		return err
	})
	if err != nil {
		return nil, s.explain("list the remainders of a range", err)
	}
	return remainders, s.confirm(ctx, "list the remainders of a range")
}
