package datastore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// Indexes. The part of a shard's count that was folded by an index is a property of the shard, in the
// mutation of the count. The place of a shard (store.IndexRange) is the hash that its key begins with: the upper
// half of wire.ShardHash.

// groupedBy is the property of a shard with its grouped part of an index.
func groupedBy(index int64) string { return "g" + strconv.FormatInt(index, 10) }

// addGrouped adds the grouped parts to the mutations of the adds.
func addGrouped(adds []*pb.Mutation, c *store.Commit) {
	for _, g := range c.Grouped {
		for _, index := range g.Indexes {
			adds[g.Add].PropertyTransforms = append(adds[g.Add].PropertyTransforms, plus(groupedBy(index), c.Adds[g.Add].Delta))
		}
	}
}

const (
	placeDigits = 8 // of a key
	placeBits   = 32
)

// placeOf returns the place, the counter and the number of a shard's key; ok is false for a key that another program
// made.
func placeOf(r ref) (place uint64, counter string, shard int, ok bool) {
	last := strings.LastIndexByte(r.name, ':')
	if last <= placeDigits || r.name[placeDigits] != ':' {
		return 0, "", 0, false
	}
	upper, err := strconv.ParseUint(r.name[:placeDigits], 16, placeBits)
	if err == nil {
		shard, err = strconv.Atoi(r.name[last+1:])
	}
	return upper << placeBits, r.name[placeDigits+1 : last], shard, err == nil
}

// lookedUp reports whether look-ups of a counter's shards find the key. Otherwise its count is in no total, and no group may
// have it.
func lookedUp(r ref, counter string, shard int) bool {
	return shard >= 0 && shard < countmill.MaxShards && r == shardRef(wire.ShardHash(counter, shard), counter, shard)
}

// placeSpan returns the keys of a range's shards after the key from; some is false if there are none.
func placeSpan(p *store.IndexRange, from string) (sp span, some bool) {
	first, last := p.From>>placeBits, p.To>>placeBits
	if p.From&(1<<placeBits-1) != 0 {
		first++ // the place itself is before the range
	}
	// A semicolon is the byte after the colon that follows the place.
	sp = span{kind: kindShard, from: fmt.Sprintf("%08x:", first), to: fmt.Sprintf("%08x;", last)}
	if from != "" {
		sp.from, sp.past = "", from
	}
	return sp, !p.Retired && first <= last
}

// maxExamined is the most keys that one page looks at.
const maxExamined = 10 * maxKeys

// A shardList is the keys of one page of a range, as of one moment.
type shardList struct {
	refs     []ref
	counters []string
	place    uint64 // of the last
	when     *timestamppb.Timestamp
	next     string
}

// listShards lists up to limit shards of a range whose counters begin as those of the index. It looks at keys
// alone, in the order of their places: the shards of other counters cost no read.
func (s *Store) listShards(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (l shardList, err error) {
	sp, some := placeSpan(p, from)
	if !some { // only the time is wanted
		sp.from, sp.past, sp.to = "z", "", "z"
	}
	prefix := x.Prefix()
	for examined := 0; examined < maxExamined && len(l.refs) < limit; {
		n, most := 0, min(max(limit-len(l.refs), maxKeys), maxExamined)
		when, err := s.keysOf(ctx, l.when, sp, most, func(r ref) {
			if n++; len(l.refs) >= limit {
				return
			}
			l.next = r.name
			place, counter, shard, ok := placeOf(r)
			if ok && strings.HasPrefix(counter, prefix) && !countmill.IsGroup(counter) && lookedUp(r, counter, shard) {
				l.refs, l.counters, l.place = append(l.refs, r), append(l.counters, counter), place
			}
		})
		if err != nil {
			return l, s.explain("list shards", err)
		}
		if l.when == nil {
			if err := s.timed(when); err != nil {
				return l, err
			}
			l.when = when
		}
		if n < most && len(l.refs) < limit {
			l.next = ""
			break
		}
		examined += n
		sp.from, sp.past = "", l.next
	}
	return l, nil
}

// keysOf visits up to limit keys of a span, at a moment, which it returns.
func (s *Store) keysOf(ctx context.Context, when *timestamppb.Timestamp, sp span, limit int, visit func(ref)) (*timestamppb.Timestamp, error) {
	q := &pb.Query{
		Kind:       []*pb.KindExpression{{Name: sp.kind}},
		Projection: []*pb.Projection{{Property: &pb.PropertyReference{Name: "__key__"}}},
		Filter:     s.filter(sp),
		Order:      []*pb.PropertyOrder{{Property: &pb.PropertyReference{Name: "__key__"}, Direction: pb.PropertyOrder_ASCENDING}},
	}
	return s.run(ctx, at(when), q, limit, func(e *pb.Entity) error {
		visit(refOf(e.GetKey()))
		return nil
	})
}

// Ungrouped reads the keys of a page, and then the counts, all at the moment of the first answer. It changes
// nothing: two workers may read one range, and a worker past its lease reads in vain, because SetRemainders
// refuses it.
//
//   - A fold by the index, also one in flight, moves count and grouped part together: the remainder is the
//     same before and after.
//   - A fold without the index is over after Index.Since.
//   - A growth writes no shard. A shard that a later fold makes is all grouped.
//   - A sweep keeps the counters of the index.
func (s *Store) Ungrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (page store.UngroupedPage, err error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return page, err
	}
	defer cancel()
	l, err := s.listShards(ctx, x, p, from, limit)
	if err != nil {
		return page, err
	}
	page.At, page.Place, page.Next = l.when.AsTime(), l.place, l.next
	err = s.eachFound(ctx, l.when, l.refs, []string{"count", groupedBy(x.Number)}, func(i int, e *pb.Entity) error {
		page.Shards++
		u, err := ungroupedOf(e, x.Number)
		if u.Counter = l.counters[i]; u.Remainder != (int128.Int{}) {
			page.Remainders = append(page.Remainders, u)
		}
		return err
	})
	if err != nil {
		return store.UngroupedPage{}, err
	}
	return page, s.confirm(ctx, "list shards")
}

// ungroupedOf is the part of a shard's count that was folded without the index.
func ungroupedOf(e *pb.Entity, index int64) (u store.Ungrouped, err error) {
	f := fields{entity: e}
	count, grouped := f.integer("count"), int64(0)
	if f.has(groupedBy(index)) {
		grouped = f.integer(groupedBy(index))
	}
	u.Remainder = int128.Of(count).Sub(int128.Of(grouped))
	if saturated(count) || saturated(grouped) {
		u.Remainder = exact(count, true)
	}
	return u, f.err
}

// dropLot is the number of shards of one commit of DropGrouped. A fold of one of them waits for it.
const dropLot = 100

// DropGrouped removes the property from the shards of a page, by updates that name no other one: a fold of
// the shard comes before or after. Nobody adds to the property any more, and no later index has its number, so a
// repeat, a second worker and one past its lease remove nothing else. A sweep keeps the counters of the index
// until the index is gone. The property is gone from a page when DropGrouped returns; after an error it
// may be gone from some shards.
func (s *Store) DropGrouped(ctx context.Context, x *store.Index, p *store.IndexRange, from string, limit int) (next string, err error) {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return "", err
	}
	defer cancel()
	l, err := s.listShards(ctx, x, p, from, limit)
	if err != nil {
		return "", err
	}
	property := groupedBy(x.Number)
	var mutations []*pb.Mutation
	err = s.eachFound(ctx, l.when, l.refs, []string{property}, func(i int, e *pb.Entity) error {
		if (&fields{entity: e}).has(property) {
			mutations = append(mutations, &pb.Mutation{
				// An update: an upsert would make a shard without a count if this one is gone.
				Operation:    &pb.Mutation_Update{Update: &pb.Entity{Key: s.key(l.refs[i])}},
				PropertyMask: &pb.PropertyMask{Paths: []string{property}}, // a named property without a value is removed
			})
		}
		return nil
	})
	for len(mutations) > 0 && err == nil {
		lot := mutations[:min(dropLot, len(mutations))]
		mutations = mutations[len(lot):]
		_, err = s.commitOnce(ctx, lot)
		if status.Code(err) == codes.NotFound {
			return "", fmt.Errorf("%s: a shard was removed meanwhile: %v", s.cfg, err) // not a fault of the deployment
		}
		err = s.explain("remove the grouped parts of shards", err)
	}
	if err != nil {
		return "", err
	}
	return l.next, s.confirm(ctx, "remove the grouped parts of shards")
}
