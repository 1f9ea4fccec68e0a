package datastore

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// at makes options for reading the database at a moment; with nil, as it is now.
func at(t *timestamppb.Timestamp) *pb.ReadOptions {
	if t == nil {
		return nil
	}
	return &pb.ReadOptions{ConsistencyType: &pb.ReadOptions_ReadTime{ReadTime: t}}
}

// lookup makes one call for some properties of entities, or for all if none is named. It returns the
// entities that it found, the keys that the server deferred, and the answer.
func (s *Store) lookup(ctx context.Context, options *pb.ReadOptions, refs []ref, properties ...string) (found map[ref]*pb.Entity, deferred []ref, resp *pb.LookupResponse, err error) {
	keys := make([]*pb.Key, 0, len(refs))
	found = make(map[ref]*pb.Entity, len(refs))
	for _, r := range refs {
		if _, twice := found[r]; twice {
			continue
		}
		found[r] = nil
		keys = append(keys, s.key(r))
	}
	req := &pb.LookupRequest{ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, ReadOptions: options, Keys: keys}
	if len(properties) > 0 {
		req.PropertyMask = &pb.PropertyMask{Paths: properties}
	}
	resp, err = s.stub.Lookup(ctx, req)
	if err != nil {
		return nil, nil, nil, err
	}
	if n := len(resp.GetFound()) + len(resp.GetMissing()) + len(resp.GetDeferred()); n != len(keys) {
		return nil, nil, nil, fmt.Errorf("%d answers for %d keys", n, len(keys))
	}
	clear(found)
	for _, e := range resp.GetFound() {
		found[refOf(e.GetEntity().GetKey())] = e.GetEntity()
	}
	for _, k := range resp.GetDeferred() {
		deferred = append(deferred, refOf(k))
	}
	return found, deferred, resp, nil
}

// timed refuses an answer without a read time. Google's older Datastore emulator, for example, sends
// none, and cannot read twice at one moment.
func (s *Store) timed(read *timestamppb.Timestamp) error {
	if read == nil {
		return fmt.Errorf("%w: %s: the server does not say when it read; %s", store.ErrDeployment, s.cfg, useFirestore)
	}
	return nil
}

// lookupAll repeats the call until nothing is deferred. Its results may be from several moments.
func (s *Store) lookupAll(ctx context.Context, refs []ref) (map[ref]*pb.Entity, error) {
	all := make(map[ref]*pb.Entity, len(refs))
	for len(refs) > 0 {
		found, deferred, _, err := s.lookup(ctx, nil, refs)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, found)
		refs = deferred
	}
	return all, nil
}

// eachFound looks up any number of keys, as of a moment, and visits the entities that exist, in the order of the keys. It
// reads only the named properties, or all if none is named.
func (s *Store) eachFound(ctx context.Context, when *timestamppb.Timestamp, refs []ref, properties []string, visit func(i int, e *pb.Entity) error) error {
	for begin := 0; begin < len(refs); begin += maxKeys {
		lot := refs[begin:min(begin+maxKeys, len(refs))]
		all := make(map[ref]*pb.Entity, len(lot))
		for open := lot; len(open) > 0; {
			found, deferred, _, err := s.lookup(ctx, at(when), open, properties...)
			if err != nil {
				return s.explain("look up", err)
			}
			maps.Copy(all, found)
			open = deferred
		}
		for i, r := range lot {
			if all[r] == nil {
				continue
			}
			if err := visit(begin+i, all[r]); err != nil {
				return err
			}
		}
	}
	return nil
}

// A span is a range of one kind's keys.
type span struct {
	kind string
	from string // the first name; empty for the lowest
	past string // names come after it; empty for none
	to   string // names come before it; empty for the highest
}

func (s *Store) filter(sp span) *pb.Filter {
	var filters []*pb.Filter
	for _, bound := range []struct {
		name string
		op   pb.PropertyFilter_Operator
	}{
		{sp.from, pb.PropertyFilter_GREATER_THAN_OR_EQUAL},
		{sp.past, pb.PropertyFilter_GREATER_THAN},
		{sp.to, pb.PropertyFilter_LESS_THAN},
	} {
		if bound.name != "" {
			filters = append(filters, &pb.Filter{FilterType: &pb.Filter_PropertyFilter{PropertyFilter: &pb.PropertyFilter{
				Property: &pb.PropertyReference{Name: "__key__"}, Op: bound.op,
				Value: &pb.Value{ValueType: &pb.Value_KeyValue{KeyValue: s.key(ref{sp.kind, allowed(bound.name)})}},
			}}})
		}
	}
	if len(filters) == 0 {
		return nil
	}
	return &pb.Filter{FilterType: &pb.Filter_CompositeFilter{CompositeFilter: &pb.CompositeFilter{Op: pb.CompositeFilter_AND, Filters: filters}}}
}

// allowed returns an equivalent bound that Datastore does not reserve. No name has the form __x__ or
// ends in a space, and none contains a character below the space.
func allowed(bound string) string {
	if len(bound) >= 4 && strings.HasPrefix(bound, "__") && strings.HasSuffix(bound, "__") {
		return bound + " "
	}
	return bound
}

// query visits up to limit entities of a span in the order of their names. It reads all of them at one
// moment, which it returns: when if given, otherwise the moment of the first answer.
func (s *Store) query(ctx context.Context, when *timestamppb.Timestamp, sp span, limit int, visit func(*pb.Entity) error) (*timestamppb.Timestamp, error) {
	q := &pb.Query{
		Kind:   []*pb.KindExpression{{Name: sp.kind}},
		Filter: s.filter(sp),
		Order:  []*pb.PropertyOrder{{Property: &pb.PropertyReference{Name: "__key__"}, Direction: pb.PropertyOrder_ASCENDING}},
	}
	return s.run(ctx, at(when), q, limit, visit)
}

// run visits up to limit results of a query. Without options it reads all of them at the moment of the
// first answer. It returns the moment of the last answer. A further run of the query goes on after it.
func (s *Store) run(ctx context.Context, options *pb.ReadOptions, q *pb.Query, limit int, visit func(*pb.Entity) error) (when *timestamppb.Timestamp, err error) {
	for {
		q.Limit = wrapperspb.Int32(int32(limit))
		resp, err := s.stub.RunQuery(ctx, &pb.RunQueryRequest{
			ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, PartitionId: s.partition(),
			ReadOptions: options, QueryType: &pb.RunQueryRequest_Query{Query: q},
		})
		if err != nil {
			return when, err
		}
		batch := resp.GetBatch()
		if when = batch.GetReadTime(); options == nil {
			options = at(when)
		}
		for _, e := range batch.GetEntityResults() {
			if err := visit(e.GetEntity()); err != nil {
				return when, err
			}
		}
		limit -= len(batch.GetEntityResults())
		q.StartCursor = batch.GetEndCursor()
		if limit <= 0 || batch.GetMoreResults() != pb.QueryResultBatch_NOT_FINISHED {
			return when, nil
		}
	}
}

// now returns the local clock in the service's granularity.
func now() time.Time { return time.Now().Truncate(time.Microsecond) }
