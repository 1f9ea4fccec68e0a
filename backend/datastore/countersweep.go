package datastore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countmill/countmill/wire"
)

const (
	// sweepPause is the pause between two transactions of a sweep, so that folds come first. A guess.
	sweepPause = 50 * time.Millisecond
	// sweepErrors is the number of errors in a row that end a sweep. Fewer may come from other
	// processes that sweep too.
	sweepErrors = 3
)

// SweepCounters removes deleted counters, in the order of their deletion. It ends with ctx, or if the
// store is unavailable. After any other error it continues with the next counter, and returns the last
// error. Several processes may call it at once. It keeps a counter whose record and shards do not fit
// one commit: a counter of more than 399 shards. It looks at no counter of an index: those stay listed, and
// listing them again costs no read of them.
func (s *Store) SweepCounters(ctx context.Context, after time.Duration) (removed int, err error) {
	if s.cfg.ReadOnly {
		return 0, nil
	}
	var page []byte
	inARow := 0
	for {
		counters, next, problem := s.deleted(ctx, after, page)
		if problem != nil || len(counters) == 0 {
			return removed, cmp.Or(problem, err)
		}
		rules, problem := s.rules(ctx)
		if problem != nil {
			return removed, problem
		}
		page = next
		for _, c := range counters {
			if rules.Kept(c) {
				continue
			}
			gone, problem := s.sweepCounter(ctx, c, after)
			switch {
			case problem == nil:
				inARow = 0
			default:
				err = problem
				inARow++
			}
			if gone {
				removed++
			}
			if inARow == sweepErrors || ctx.Err() != nil {
				return removed, cmp.Or(err, ctx.Err())
			}
			select {
			case <-ctx.Done():
			case <-time.After(sweepPause):
			}
		}
	}
}

// deleted returns a page of counters that were deleted at least that long ago, and the start of the
// next page. It uses the local clock, because the sweep's transaction checks the time again.
func (s *Store) deleted(ctx context.Context, after time.Duration, page []byte) (counters []string, next []byte, err error) {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	deletedAt := &pb.PropertyReference{Name: "deleted_at"}
	resp, err := s.stub.RunQuery(ctx, &pb.RunQueryRequest{
		ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, PartitionId: s.partition(),
		QueryType: &pb.RunQueryRequest_Query{Query: &pb.Query{
			Kind:       []*pb.KindExpression{{Name: kindCounter}},
			Projection: []*pb.Projection{{Property: &pb.PropertyReference{Name: "__key__"}}},
			Filter: &pb.Filter{FilterType: &pb.Filter_PropertyFilter{PropertyFilter: &pb.PropertyFilter{
				Property: deletedAt, Op: pb.PropertyFilter_LESS_THAN_OR_EQUAL, Value: indexedInstant(now().Add(-after)),
			}}},
			Order:       []*pb.PropertyOrder{{Property: deletedAt, Direction: pb.PropertyOrder_ASCENDING}},
			StartCursor: page,
			Limit:       wrapperspb.Int32(maxKeys),
		}},
	})
	if err != nil {
		return nil, nil, s.explain("list deleted counters", err)
	}
	for _, e := range resp.GetBatch().GetEntityResults() {
		counters = append(counters, refOf(e.GetEntity().GetKey()).name)
	}
	return counters, resp.GetBatch().GetEndCursor(), nil
}

// sweepCounter removes a counter's record, shards and series. A counter that has counted something since
// its deletion exists again.
func (s *Store) sweepCounter(ctx context.Context, counter string, after time.Duration) (gone bool, err error) {
	for more := true; more; {
		if gone, more, err = s.sweepPart(ctx, counter, after); err != nil {
			return false, fmt.Errorf("sweep counter %q: %w", counter, err)
		}
	}
	if gone {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "deleted counter removed", slog.String("store", s.cfg.String()), slog.String("counter", counter))
	}
	return gone, nil
}

// sweepPart removes all of a counter in one transaction that reads its record and shards. If its series
// has too many days for that, sweepPart removes some of them, and there is more. A fold, a move or a
// growth in between makes it fail, or waits until it has ended.
func (s *Store) sweepPart(ctx context.Context, counter string, after time.Duration) (gone, more bool, err error) {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return false, false, err
	}
	defer cancel()
	refs, err := s.counterRefs(ctx, counter)
	if err != nil || len(refs) > maxEntities {
		return false, false, err
	}
	err = s.transaction(ctx, func(tx []byte) (mutations []*pb.Mutation, err error) {
		m, err := s.metaIn(ctx, tx)
		if err != nil || m.settings.Rules.Kept(counter) {
			return nil, err // an index that begins meanwhile makes this commit fail, or comes after it
		}
		found, when, err := s.lookupIn(ctx, tx, refs)
		if err != nil {
			return nil, s.explain("read in a transaction", err)
		}
		due, same, err := sweepable(found, refs, when.Add(-after))
		if err != nil || !due {
			return nil, err
		}
		if !same {
			return []*pb.Mutation{s.rewrite(found[refs[0]], map[string]*pb.Value{"deleted_at": nil})}, nil
		}
		// The buckets in its shards go with them.
		all, err := s.daysOf(ctx, in(tx), counter)
		if err != nil {
			return nil, s.explain("list days of a series", err)
		}
		for _, r := range refs {
			if found[r] != nil {
				all = append(all, r)
			}
		}
		if more = len(all) > maxEntities; more {
			all = all[:maxEntities] // days only
		}
		for _, r := range all {
			mutations = append(mutations, s.remove(r))
		}
		gone = !more
		return mutations, nil
	})
	return gone, more, err
}

// daysOf returns days of a counter in the archive, more than a commit takes if there are that many. A
// sweep reads them in its transaction, so that no day comes later.
func (s *Store) daysOf(ctx context.Context, options *pb.ReadOptions, counter string) (days []ref, err error) {
	q := &pb.Query{
		Kind:       []*pb.KindExpression{{Name: kindSeries}},
		Projection: []*pb.Projection{{Property: &pb.PropertyReference{Name: "__key__"}}},
		Filter:     s.filter(archiveSpan(counter, 0, lastDay)),
	}
	_, err = s.run(ctx, options, q, maxEntities+1, func(e *pb.Entity) error {
		r := refOf(e.GetKey())
		if of, _, ok := archived(r); ok && of == counter {
			days = append(days, r)
		}
		return nil
	})
	return days, err
}

// counterRefs returns the keys of a counter's record and of the shards that it names now.
func (s *Store) counterRefs(ctx context.Context, counter string) ([]ref, error) {
	refs := []ref{{kindCounter, counter}}
	found, err := s.lookupAll(ctx, refs)
	if err != nil || found[refs[0]] == nil {
		return refs, s.explain("look up a deleted counter", err)
	}
	rec, err := recordOf(found[refs[0]])
	for n := range int(rec.shards) {
		refs = append(refs, shardRef(wire.ShardHash(counter, n), counter, n))
	}
	return refs, err
}

// sweepable reports whether the counter was deleted by that moment and has no shards beyond refs (due).
// It also reports whether its shards and its remainder sum to its baseline, so that it has counted nothing since
// (same).
func sweepable(found map[ref]*pb.Entity, refs []ref, by time.Time) (due, same bool, err error) {
	e := found[refs[0]]
	if e == nil {
		return false, false, nil
	}
	rec, err := recordOf(e)
	if err != nil || rec.DeletedAt.IsZero() || rec.DeletedAt.After(by) || int(rec.shards) != len(refs)-1 {
		return false, false, err
	}
	sum := exact(rec.remainder, rec.overflow)
	for _, r := range refs[1:] {
		value, err := valueOf(r, found[r])
		if err != nil {
			return false, false, err
		}
		sum = sum.Add(value.Count)
	}
	return true, sum == rec.Baseline, nil
}
