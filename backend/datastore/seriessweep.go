package datastore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countmill/countmill/wire"
)

// seriesLot is the number of days that one transaction of a sweep reads and writes.
const seriesLot = 50

// SweepSeries looks at the days of the archive that are due. It ends with ctx, or after three errors in
// a row; after any other error it goes on, and returns the last one. Several processes may call it at
// once.
func (s *Store) SweepSeries(ctx context.Context) (err error) {
	if s.cfg.ReadOnly {
		return ctx.Err()
	}
	var page []byte
	inARow := 0
	for {
		refs, next, problem := s.dueDays(ctx, page)
		if problem != nil || len(refs) == 0 {
			return cmp.Or(problem, err)
		}
		page = next
		for lot := range slices.Chunk(refs, seriesLot) {
			if problem := s.sweepDays(ctx, lot); problem != nil {
				inARow, err = inARow+1, problem
			} else {
				inARow = 0
			}
			if inARow == sweepErrors || ctx.Err() != nil {
				return cmp.Or(err, ctx.Err())
			}
		}
	}
}

// dueDays returns a page of days that are due by the local clock, and the start of the next page. The
// sweep's transaction checks the time again.
func (s *Store) dueDays(ctx context.Context, page []byte) (refs []ref, next []byte, err error) {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	due := &pb.PropertyReference{Name: "due"}
	resp, err := s.stub.RunQuery(ctx, &pb.RunQueryRequest{
		ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, PartitionId: s.partition(),
		QueryType: &pb.RunQueryRequest_Query{Query: &pb.Query{
			Kind:       []*pb.KindExpression{{Name: kindSeries}},
			Projection: []*pb.Projection{{Property: &pb.PropertyReference{Name: "__key__"}}},
			Filter: &pb.Filter{FilterType: &pb.Filter_PropertyFilter{PropertyFilter: &pb.PropertyFilter{
				Property: due, Op: pb.PropertyFilter_LESS_THAN_OR_EQUAL, Value: indexedInteger(int64(wire.MinuteOf(now()))),
			}}},
			Order:       []*pb.PropertyOrder{{Property: due, Direction: pb.PropertyOrder_ASCENDING}},
			StartCursor: page,
			Limit:       wrapperspb.Int32(maxKeys),
		}},
	})
	if err != nil {
		return nil, nil, s.explain("list days of series", err)
	}
	for _, e := range resp.GetBatch().GetEntityResults() {
		refs = append(refs, refOf(e.GetEntity().GetKey()))
	}
	return refs, resp.GetBatch().GetEndCursor(), nil
}

// sweepDays joins and removes in one transaction what the rules, which it reads too, promise no longer.
func (s *Store) sweepDays(ctx context.Context, days []ref) error {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	err = s.readModifyWrite(ctx, append([]ref{metaRef}, days...), func(found map[ref]*pb.Entity, when time.Time) (mutations []*pb.Mutation, err error) {
		if found[metaRef] == nil {
			return nil, s.another("is gone")
		}
		m, err := s.metaOf(found[metaRef])
		if err != nil {
			return nil, err
		}
		for _, r := range days {
			if found[r] == nil {
				continue
			}
			change, err := s.sweepDay(r, found[r], m.settings.Rules, when)
			if err != nil {
				return nil, err
			}
			if change != nil {
				mutations = append(mutations, change)
			}
		}
		return mutations, nil
	})
	if err != nil {
		return fmt.Errorf("sweep %d days of series: %w", len(days), err)
	}
	return nil
}

// sweepDay makes the mutation of a day, or nil if it stays as it is.
func (s *Store) sweepDay(r ref, e *pb.Entity, rules *store.Rules, when time.Time) (*pb.Mutation, error) {
	counter, d, ok := archived(r)
	f := fields{entity: e}
	if !ok {
		f.wrong("__key__", "of a counter's day")
		return nil, f.err
	}
	keep := rules.KeepOf(counter)
	if isOver(removesAt(d, keep), when) {
		return s.remove(r), nil
	}
	due := joinsAt(d, keep)
	if isOver(due, when) {
		due = removesAt(d, keep)
		if m, err := s.join(r, e, due); m != nil || err != nil {
			return m, err
		}
	}
	if f.integer("due") == int64(due) {
		return nil, f.err
	}
	return s.archiveDay(r, due), f.err
}

// join moves the minutes of a day to its quarter hours. It returns nil if the day has no minutes.
func (s *Store) join(r ref, e *pb.Entity, due wire.Minute) (*pb.Mutation, error) {
	buckets, err := bucketsOf(e)
	if err != nil {
		return nil, err
	}
	m := s.archiveDay(r, due)
	quarters := make(map[slot]wide)
	for _, b := range buckets {
		if !b.quarter {
			m.PropertyMask.Paths = append(m.PropertyMask.Paths, b.property()) // a named property without a value is removed
			quarters[b.joined()] = quarters[b.joined()].plus(b.sum)
		}
	}
	if len(quarters) == 0 {
		return nil, nil
	}
	for q, sum := range quarters {
		m.PropertyTransforms = append(m.PropertyTransforms, plus(q.property(), sum.clamped()))
	}
	return m, nil
}

// joinsAt is when the minutes of a day are kept no longer; removesAt is when its quarter hours are.
func joinsAt(d seriesDay, keep store.Retention) wire.Minute { return endOf(d, keep.Minutes) }

func removesAt(d seriesDay, keep store.Retention) wire.Minute { return endOf(d, keep.Quarters) }

func endOf(d seriesDay, keep time.Duration) wire.Minute {
	return (d + 1).first() + wire.Minute((keep+store.SeriesSlack)/time.Minute)
}

// isOver reports whether the minute is in the past.
func isOver(m wire.Minute, now time.Time) bool { return m.Time().Before(now) }
