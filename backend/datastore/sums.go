package datastore

import (
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// sumsPage is the most entities of one call: a shard with a full ring has some 3 KB.
	sumsPage = 500

	// sumsWithin bounds a look at all sums. The service keeps a moment for an hour.
	sumsWithin = 55 * time.Minute
)

// Sums reads the records and the shards of the query side by side, both in the order of the counters'
// names and at one moment: an entity for each record and one for each shard.
//
// Of minutes, the shards have those of the ring. The archive is in the order of hashes, so the days of the window
// are looked up by their keys: one read more for each counter and day, also where that counter counted
// nothing.
func (s *Store) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (sums store.Sums, err error) {
	ctx, cancel := context.WithTimeout(ctx, sumsWithin)
	defer cancel()
	p := &paced{rate: q.Rate, began: time.Now()}
	when, err := s.moment(ctx)
	if err != nil {
		return sums, s.explain("look at all sums", err)
	}
	sums.At = when.AsTime()
	for _, prefix := range prefixes(q) {
		m := &sumMerge{q: q, visit: visit, records: s.pages(p, when, recordsOf(s, prefix)), shards: s.pages(p, when, shardsOf(prefix))}
		if q.To > 0 {
			m.window = s.newWindowScan(p, when, q, visit)
		}
		if err = m.run(ctx); err != nil {
			break
		}
	}
	if sums.Read = p.read; err != nil && time.Since(p.began) >= sumsWithin {
		err = fmt.Errorf("%d entities in %s, after which Datastore forgets the moment: raise --board-rate", p.read, sumsWithin)
	}
	if err != nil {
		return sums, s.explain("look at all sums", err)
	}
	return sums, s.confirm(ctx, "look at all sums")
}

// Changes knows nothing: other processes fold too.
func (s *Store) Changes() (n uint64, known bool) { return 0, false }

func prefixes(q *store.SumsQuery) []string {
	if q.Groups {
		return q.Index.GroupPrefixes()
	}
	return []string{q.Index.Prefix()}
}

// moment is the time at which the service answers.
func (s *Store) moment(ctx context.Context) (*timestamppb.Timestamp, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	_, _, resp, err := s.lookup(ctx, nil, []ref{{kindProbe, "moment"}})
	if err != nil {
		return nil, err
	}
	return resp.GetReadTime(), s.timed(resp.GetReadTime())
}

func recordsOf(s *Store, prefix string) *pb.Query {
	sp, _ := prefixSpan(prefix, "")
	return &pb.Query{
		Kind: []*pb.KindExpression{{Name: kindCounter}}, Filter: s.filter(sp),
		Order: []*pb.PropertyOrder{{Property: &pb.PropertyReference{Name: "__key__"}, Direction: pb.PropertyOrder_ASCENDING}},
	}
}

func shardsOf(prefix string) *pb.Query {
	filters := []*pb.Filter{byCounter(pb.PropertyFilter_GREATER_THAN_OR_EQUAL, prefix)}
	if end := successor(prefix); end != "" {
		filters = append(filters, byCounter(pb.PropertyFilter_LESS_THAN, end))
	}
	return &pb.Query{
		Kind:   []*pb.KindExpression{{Name: kindShard}},
		Filter: &pb.Filter{FilterType: &pb.Filter_CompositeFilter{CompositeFilter: &pb.CompositeFilter{Op: pb.CompositeFilter_AND, Filters: filters}}},
		Order:  []*pb.PropertyOrder{{Property: &pb.PropertyReference{Name: "counter"}, Direction: pb.PropertyOrder_ASCENDING}},
	}
}

// A paced keeps several queries at a rate together.
type paced struct {
	rate  float64 // entities a second; 0 for no limit
	began time.Time
	read  int64
}

// page is the size of the next page. One page takes about a second at most.
func (p *paced) page() int {
	if p.rate == 0 {
		return sumsPage
	}
	return max(1, min(sumsPage, int(p.rate)))
}

// took waits until so many more entities were due.
func (p *paced) took(ctx context.Context, n int) error {
	if p.read += int64(n); p.rate == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(time.Until(p.began.Add(time.Duration(float64(p.read) / p.rate * float64(time.Second)))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pages is a query that is read page by page.
type pages struct {
	store *Store
	paced *paced
	when  *timestamppb.Timestamp
	query *pb.Query
	batch []*pb.EntityResult
	ended bool
}

func (s *Store) pages(p *paced, when *timestamppb.Timestamp, q *pb.Query) *pages {
	return &pages{store: s, paced: p, when: when, query: q}
}

// peek returns the next result, or nil at the end.
func (p *pages) peek(ctx context.Context) (*pb.EntityResult, error) {
	for len(p.batch) == 0 && !p.ended {
		if err := p.fetch(ctx); err != nil {
			return nil, err
		}
	}
	if len(p.batch) == 0 {
		return nil, nil
	}
	return p.batch[0], nil
}

func (p *pages) drop() { p.batch = p.batch[1:] }

func (p *pages) fetch(ctx context.Context) error {
	call, cancel, err := p.store.call(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	p.query.Limit = wrapperspb.Int32(int32(p.paced.page()))
	resp, err := p.store.stub.RunQuery(call, &pb.RunQueryRequest{
		ProjectId: p.store.cfg.Project, DatabaseId: p.store.cfg.Database, PartitionId: p.store.partition(),
		ReadOptions: at(p.when), QueryType: &pb.RunQueryRequest_Query{Query: p.query},
	})
	if err != nil {
		return err
	}
	batch := resp.GetBatch()
	p.batch, p.query.StartCursor = batch.GetEntityResults(), batch.GetEndCursor()
	p.ended = batch.GetMoreResults() == pb.QueryResultBatch_NO_MORE_RESULTS || len(p.batch) == 0 && batch.GetMoreResults() != pb.QueryResultBatch_NOT_FINISHED
	return p.paced.took(ctx, len(p.batch))
}

// A sumMerge joins records and shards, both in the order of the counters.
type sumMerge struct {
	q               *store.SumsQuery
	visit           func(*store.CounterSum) error
	records, shards *pages
	window          *windowScan // nil for totals
}

func (m *sumMerge) run(ctx context.Context) error {
	for {
		r, err := m.records.peek(ctx)
		if err != nil {
			return err
		}
		if r == nil {
			break
		}
		m.records.drop()
		if err := m.counter(ctx, r.GetEntity()); err != nil {
			return err
		}
	}
	if m.window != nil {
		return m.window.flush(ctx)
	}
	return nil
}

// counter sums the shards of a record. Shards without a record are of no counter.
func (m *sumMerge) counter(ctx context.Context, e *pb.Entity) error {
	name := refOf(e.GetKey()).name
	rec, err := valueOf(ref{kindCounter, name}, e)
	if err != nil {
		return fmt.Errorf("record of %q: %w", name, err)
	}
	var ring *windowed
	if m.window != nil {
		ring = m.window.counter(name)
	}
	sum, exists, err := m.sumShards(ctx, name, &rec, ring)
	if err != nil || !m.q.Has(name) {
		return err
	}
	c := store.CounterSum{Counter: []byte(name)}
	total, fits := sum.Int64()
	c.Sum, c.Overflow = total, !fits
	switch deleted := !rec.Reset.DeletedAt.IsZero() && total == 0 && !c.Overflow; {
	case deleted:
		return nil
	case ring != nil:
		return m.window.add(ctx, ring)
	case !exists:
		return nil
	}
	return m.visit(&c)
}

// sumShards sums the shards that a record names, and gathers the rings of all shards if ring is not nil. exists is
// false for a counter that was never incremented.
func (m *sumMerge) sumShards(ctx context.Context, name string, rec *store.Value, ring *windowed) (sum int128.Int, exists bool, err error) {
	sum, exists = rec.Remainder.Sub(rec.Reset.Baseline), rec.Remainder != int128.Int{}
	for {
		r, err := m.shards.peek(ctx)
		if err != nil || r == nil {
			return sum, exists, err
		}
		shard := shardOf(r)
		if shard.Counter > name {
			return sum, exists, nil
		}
		m.shards.drop()
		if shard.Counter < name {
			continue
		}
		if ring != nil {
			if err := ring.gather(r.GetEntity()); err != nil {
				return sum, exists, err
			}
		}
		if shard.Number >= rec.Shards {
			continue
		}
		if shard.Bad != "" {
			return sum, exists, fmt.Errorf("shard %d of %q: %s", shard.Number, name, shard.Bad)
		}
		sum, exists = sum.Add(shard.Count), true
	}
}
