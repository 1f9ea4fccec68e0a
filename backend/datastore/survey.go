package datastore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// ShardsOf queries the shards of a counter by their one indexed property.
func (s *Store) ShardsOf(ctx context.Context, counter string) (store.ShardPage, error) {
	page, err := s.survey(ctx, []*pb.Filter{byCounter(pb.PropertyFilter_EQUAL, counter)}, nil, 2*countmill.MaxShards)
	slices.SortFunc(page.Shards, func(a, b store.Shard) int { return a.Number - b.Number })
	page.Next = ""
	return page, err
}

// ShardPage queries shards in the order of their counters. A page's Next is the cursor after its last
// result.
func (s *Store) ShardPage(ctx context.Context, prefix, from string, limit int) (store.ShardPage, error) {
	filters := []*pb.Filter{byCounter(pb.PropertyFilter_GREATER_THAN_OR_EQUAL, prefix)}
	if end := successor(prefix); end != "" {
		filters = append(filters, byCounter(pb.PropertyFilter_LESS_THAN, end))
	}
	return s.survey(ctx, filters, []byte(from), min(limit, maxKeys))
}

func byCounter(op pb.PropertyFilter_Operator, name string) *pb.Filter {
	return &pb.Filter{FilterType: &pb.Filter_PropertyFilter{PropertyFilter: &pb.PropertyFilter{
		Property: &pb.PropertyReference{Name: "counter"}, Op: op, Value: indexedText(name),
	}}}
}

// survey reads shards, and then the records of their counters at the same moment.
func (s *Store) survey(ctx context.Context, filters []*pb.Filter, from []byte, limit int) (page store.ShardPage, err error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return page, err
	}
	defer cancel()
	sent := now()
	q := &pb.Query{
		Kind:        []*pb.KindExpression{{Name: kindShard}},
		Filter:      &pb.Filter{FilterType: &pb.Filter_CompositeFilter{CompositeFilter: &pb.CompositeFilter{Op: pb.CompositeFilter_AND, Filters: filters}}},
		StartCursor: from,
	}
	if filters[0].GetPropertyFilter().GetOp() != pb.PropertyFilter_EQUAL {
		q.Order = []*pb.PropertyOrder{{Property: &pb.PropertyReference{Name: "counter"}, Direction: pb.PropertyOrder_ASCENDING}}
	}
	when, err := s.collect(ctx, q, limit, &page)
	if err != nil {
		return store.ShardPage{}, s.explain("list shards", err)
	}
	if page.At = sent; when != nil {
		page.At = when.AsTime()
	}
	if page.Records, err = s.recordsAt(ctx, when, page.Shards); err != nil {
		return store.ShardPage{}, err
	}
	return page, s.confirm(ctx, "list shards")
}

// collect runs a query until it has limit shards or ends.
func (s *Store) collect(ctx context.Context, q *pb.Query, limit int, page *store.ShardPage) (when *timestamppb.Timestamp, err error) {
	for {
		q.Limit = wrapperspb.Int32(int32(limit - len(page.Shards)))
		resp, err := s.stub.RunQuery(ctx, &pb.RunQueryRequest{
			ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, PartitionId: s.partition(),
			ReadOptions: at(when), QueryType: &pb.RunQueryRequest_Query{Query: q},
		})
		if err != nil {
			return when, err
		}
		batch := resp.GetBatch()
		if when == nil {
			when = batch.GetReadTime()
		}
		for _, r := range batch.GetEntityResults() {
			page.Shards = append(page.Shards, shardOf(r))
		}
		q.StartCursor = batch.GetEndCursor()
		if len(page.Shards) >= limit {
			page.Next = string(q.StartCursor)
			return when, nil
		}
		if batch.GetMoreResults() != pb.QueryResultBatch_NOT_FINISHED {
			return when, nil
		}
	}
}

func (s *Store) recordsAt(ctx context.Context, when *timestamppb.Timestamp, shards []store.Shard) (map[string]int, error) {
	var refs []ref
	records := make(map[string]int)
	for i := range shards {
		if r := (ref{kindCounter, shards[i].Counter}); shards[i].Counter != "" && (len(refs) == 0 || refs[len(refs)-1] != r) {
			refs = append(refs, r) // the shards of one counter are consecutive
		}
	}
	return records, s.eachFound(ctx, when, refs, nil, func(i int, e *pb.Entity) error {
		f := fields{entity: e}
		records[refs[i].name] = int(f.integer("shards"))
		return f.err
	})
}

// shardOf reads a shard. It reports a shard with another key than readers look up as bad.
func shardOf(r *pb.EntityResult) store.Shard {
	f := fields{entity: r.GetEntity()}
	key := refOf(r.GetEntity().GetKey())
	shard := store.Shard{Counter: f.text("counter"), Updated: updated(r)}
	digits := key.name[strings.LastIndexByte(key.name, ':')+1:]
	n, err := strconv.Atoi(digits)
	if shard.Number = n; err != nil || n < 0 || key != shardRef(wire.ShardHash(shard.Counter, n), shard.Counter, n) {
		shard.Number, shard.Bad = max(n, 0), fmt.Sprintf("its key %q does not belong to a shard of this counter", key.name)
	}
	count := f.integer("count")
	shard.Count = exact(count, saturated(count))
	if f.err != nil {
		shard.Bad = f.err.Error()
	}
	return shard
}

// ViewAt opens a view of a past moment, less than an hour ago: the service keeps no older versions.
func (s *Store) ViewAt(moment time.Time) store.View {
	return &view{store: s, when: timestamppb.New(moment), asOf: moment}
}

func updated(r *pb.EntityResult) time.Time {
	if r.GetUpdateTime() == nil {
		return time.Time{}
	}
	return r.GetUpdateTime().AsTime()
}
