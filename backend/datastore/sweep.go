package datastore

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countmill/countmill"
)

// Who deletes markers that have expired.
const (
	// SweepAuto is SweepOn where there can be no TTL policy, else SweepOff.
	SweepAuto = "auto"
	// SweepOn has Sweep delete them.
	SweepOn = "on"
	// SweepOff leaves them to a TTL policy.
	SweepOff = "off"
)

const (
	// sweepMargin is how long a marker must have been expired, by the store's clock.
	sweepMargin = time.Hour
	// sweepPause is between two commits of a sweep, so that folds come first. A guess:
	// with 25 markers a commit it leaves some 300 markers a second to a process.
	sweepPause = 50 * time.Millisecond
	// sweepErrors in a row end a sweep. Fewer may be other processes that sweep too.
	sweepErrors = 3
	// swaths are the values of a part id's first byte.
	swaths = 256
)

// expiresOn is the property by which expired markers are found: a marker's swath and the
// day on which it expires. An index on expire_at itself would take its writes at one
// end, and so hold the whole pipeline to 500 markers a second; this one takes them in 256
// places.
const expiresOn = "expires_on"

func expiryDay(id string, at time.Time) string { return id[:2] + ":" + at.UTC().Format(time.DateOnly) }

// decideSweep goes by the entities of a commit: a server or a database that takes 25 has
// no TTL policies.
func (s *Store) decideSweep() {
	s.sweeps = s.cfg.Sweep == SweepOn || s.cfg.Sweep == SweepAuto && s.entities == maxGroups
}

// saySweep says what becomes of expired markers where that is not what most databases do.
func (s *Store) saySweep() {
	switch {
	case s.cfg.ReadOnly:
	case s.sweeps:
		s.cfg.Logger.Info("aggregators sweep expired markers out of this database; set sweep=off on all of them where a TTL policy does it",
			"store", s.cfg.String())
	case s.entities == maxGroups:
		s.cfg.Logger.Warn("expired markers stay in this database: it seems to have no TTL policies, and sweep=off", "store", s.cfg.String())
	}
}

// Sweep deletes markers that expired before the present day, and returns how many. It
// does nothing where a TTL policy does that. It takes its time, and ends with ctx, or when
// the store is away; after an error it goes on elsewhere, and returns the last one. Several
// processes may sweep at once: each begins at another place, and where two meet one may get
// an error.
//
// No marker goes that is not past its time in a transaction that reads it and the store's
// clock: what a query said of it may be old, and an id that comes again after its
// marker was forgotten has a new one.
//
//	sweeper A   finds marker m expired
//	sweeper B   deletes m
//	aggregator  folds a part with the same id, with a new m
//	sweeper A   must not delete m
func (s *Store) Sweep(ctx context.Context) (deleted int, err error) {
	if !s.sweeps {
		return 0, nil
	}
	first, inARow := rand.IntN(swaths), 0
	for i := range swaths {
		n, problem := s.sweepSwath(ctx, hex.EncodeToString([]byte{byte(first + i)}))
		deleted += n
		s.swept.Add(int64(n))
		if problem == nil {
			inARow = 0
			continue
		}
		err = problem
		if inARow++; inARow == sweepErrors || ctx.Err() != nil {
			break
		}
	}
	if deleted > 0 {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "expired markers deleted", slog.String("store", s.cfg.String()), slog.Int("markers", deleted))
	}
	return deleted, err
}

// sweepSwath deletes the expired markers whose ids begin with swath.
func (s *Store) sweepSwath(ctx context.Context, swath string) (deleted int, err error) {
	var page []byte
	for {
		refs, next, err := s.expired(ctx, swath, page)
		if err != nil || len(refs) == 0 {
			return deleted, err
		}
		page = next // what is not deleted is not found again
		for lot := range slices.Chunk(refs, s.entities) {
			n, err := s.deleteExpired(ctx, lot)
			if deleted += n; err != nil {
				return deleted, err
			}
			select {
			case <-ctx.Done():
				return deleted, ctx.Err()
			case <-time.After(sweepPause):
			}
		}
	}
}

// expired returns a page of markers that may have expired, and where the next begins. It
// goes by the local clock: that one only proposes.
func (s *Store) expired(ctx context.Context, swath string, page []byte) (refs []ref, next []byte, err error) {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	bound := func(op pb.PropertyFilter_Operator, v string) *pb.Filter {
		return &pb.Filter{FilterType: &pb.Filter_PropertyFilter{PropertyFilter: &pb.PropertyFilter{
			Property: &pb.PropertyReference{Name: expiresOn}, Op: op, Value: indexedText(v),
		}}}
	}
	resp, err := s.stub.RunQuery(ctx, &pb.RunQueryRequest{
		ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, PartitionId: s.partition(),
		QueryType: &pb.RunQueryRequest_Query{Query: &pb.Query{
			Kind:       []*pb.KindExpression{{Name: kindApplied}},
			Projection: []*pb.Projection{{Property: &pb.PropertyReference{Name: "__key__"}}},
			Filter: &pb.Filter{FilterType: &pb.Filter_CompositeFilter{CompositeFilter: &pb.CompositeFilter{
				Op: pb.CompositeFilter_AND, Filters: []*pb.Filter{
					bound(pb.PropertyFilter_GREATER_THAN_OR_EQUAL, swath+":"),
					bound(pb.PropertyFilter_LESS_THAN, expiryDay(swath, now())),
				},
			}}},
			Order:       []*pb.PropertyOrder{{Property: &pb.PropertyReference{Name: expiresOn}, Direction: pb.PropertyOrder_ASCENDING}},
			StartCursor: page,
			Limit:       wrapperspb.Int32(maxKeys),
		}},
	})
	if err != nil {
		return nil, nil, s.explain("look for expired markers", err)
	}
	for _, e := range resp.GetBatch().GetEntityResults() {
		refs = append(refs, refOf(e.GetEntity().GetKey()))
	}
	return refs, resp.GetBatch().GetEndCursor(), nil
}

// deleteExpired deletes those of the markers that have expired, in one transaction.
func (s *Store) deleteExpired(ctx context.Context, refs []ref) (deleted int, err error) {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return 0, err
	}
	defer cancel()
	_, err = s.readModifyWrite(ctx, refs, func(found map[ref]*pb.Entity, when time.Time) ([]*pb.Mutation, error) {
		if when.IsZero() {
			if !s.unpinned {
				return nil, fmt.Errorf("%w: %s: the server does not say when it read", countmill.ErrUnavailable, s.cfg)
			}
			when = now()
		}
		var mutations []*pb.Mutation
		for _, r := range refs {
			if e := found[r]; e != nil && expiredBefore(e, when.Add(-sweepMargin)) {
				mutations = append(mutations, &pb.Mutation{Operation: &pb.Mutation_Delete{Delete: s.key(r)}})
			}
		}
		deleted = len(mutations)
		return mutations, nil
	})
	if err != nil {
		return 0, fmt.Errorf("delete expired markers: %w", err)
	}
	return deleted, nil
}

// expiredBefore is false also for what is not a marker of ours: it stays.
func expiredBefore(e *pb.Entity, t time.Time) bool {
	f := fields{entity: e}
	at := f.instant("expire_at")
	return f.err == nil && !at.IsZero() && at.Before(t)
}

// Sweeps reports whether Sweep has anything to do here.
func (s *Store) Sweeps() bool { return s.sweeps }

// Swept is how many markers Sweep has deleted.
func (s *Store) Swept() int64 { return s.swept.Load() }
