package datastore

import (
	"context"
	"math"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/aggregator"
)

// rollback bounds the end of a transaction that came to nothing.
const rollbackTimeout = 5 * time.Second

// foldClassic reads the counts and writes the sums, with the markers, in a transaction.
// It tries once: after an unclear answer only the aggregator may try again, with the
// same markers.
func (s *Store) foldClassic(ctx context.Context, c *aggregator.Commit) (aggregator.Folded, error) {
	told := make([]aggregator.Told, len(c.Adds))
	refs := make([]ref, len(c.Adds))
	for i := range c.Adds {
		refs[i] = shardRef(c.Adds[i].Hash, c.Adds[i].Counter, c.Adds[i].Shard)
	}
	at, err := s.readModifyWrite(ctx, refs, func(found map[ref]*pb.Entity, _ time.Time) ([]*pb.Mutation, error) {
		mutations := s.insertMarkers(c.Markers)
		for i := range c.Adds {
			a := &c.Adds[i]
			count := int64(0)
			if e := found[refs[i]]; e != nil {
				f := fields{entity: e}
				if count = f.integer("count"); f.err != nil {
					return nil, notApplied(f.err)
				}
			}
			before := found[refs[i]].GetProperties() // of an older version: without these two
			told[i].Tally = max(before["tally"].GetIntegerValue(), c.Tally) + 1
			told[i].Known = max(int(before["shards"].GetIntegerValue()), knownOf(c, i))
			mutations = append(mutations, s.upsert(refs[i], map[string]*pb.Value{
				"counter": indexedText(a.Counter), "count": integer(addSaturating(count, a.Delta)),
				"tally": integer(told[i].Tally), "shards": integer(int64(told[i].Known)),
			}))
		}
		return mutations, nil
	})
	if err != nil {
		return aggregator.Folded{}, err
	}
	return aggregator.Folded{At: at, Shards: told}, nil
}

// addSaturating stops at either end of int64, as the Increment of the service does; a
// reader takes both ends as an overflow.
func addSaturating(a, b int64) int64 {
	switch {
	case a == math.MaxInt64 || a == math.MinInt64:
		return a // it has overflowed before: no later delta makes it a sum again
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// upsert sets properties and leaves the others as they are.
func (s *Store) upsert(r ref, properties map[string]*pb.Value) *pb.Mutation {
	mask := make([]string, 0, len(properties))
	for name := range properties {
		mask = append(mask, name)
	}
	return &pb.Mutation{
		Operation:    &pb.Mutation_Upsert{Upsert: &pb.Entity{Key: s.key(r), Properties: properties}},
		PropertyMask: &pb.PropertyMask{Paths: mask},
	}
}

// A planFunc makes the mutations of a transaction from what it found and when, which is
// zero where the server does not say it.
type planFunc func(found map[ref]*pb.Entity, when time.Time) ([]*pb.Mutation, error)

// readModifyWrite is one try of a transaction. Nothing is applied when plan returns an
// error or no mutations.
func (s *Store) readModifyWrite(ctx context.Context, refs []ref, plan planFunc) (time.Time, error) {
	begun, err := s.stub.BeginTransaction(ctx, &pb.BeginTransactionRequest{
		ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, TransactionOptions: readWrite,
	})
	if err != nil {
		return time.Time{}, notApplied(s.explain("begin a transaction", err))
	}
	tx := begun.GetTransaction()
	found, when, err := s.lookupIn(ctx, tx, refs)
	if err != nil {
		s.rollback(ctx, tx)
		return time.Time{}, notApplied(s.explain("read in a transaction", err))
	}
	mutations, err := plan(found, when)
	if err != nil || len(mutations) == 0 {
		s.rollback(ctx, tx)
		return time.Time{}, err
	}
	resp, err := s.commitIn(ctx, tx, mutations)
	if err != nil {
		s.rollback(ctx, tx)
		return time.Time{}, s.explain("commit a transaction", err)
	}
	return commitTime(resp), nil
}

// lookupIn also returns when it first read.
func (s *Store) lookupIn(ctx context.Context, tx []byte, refs []ref) (all map[ref]*pb.Entity, when time.Time, err error) {
	options := &pb.ReadOptions{ConsistencyType: &pb.ReadOptions_Transaction{Transaction: tx}}
	all = make(map[ref]*pb.Entity, len(refs))
	for len(refs) > 0 {
		found, deferred, resp, err := s.lookup(ctx, options, refs)
		if err != nil {
			return nil, time.Time{}, err
		}
		for r, e := range found {
			all[r] = e
		}
		if t := resp.GetReadTime(); t != nil && when.IsZero() {
			when = t.AsTime()
		}
		refs = deferred
	}
	return all, when, nil
}

// rollback gives the transaction's locks back: others would wait for them until the
// server ends it. Its answer changes nothing.
func (s *Store) rollback(ctx context.Context, tx []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = s.stub.Rollback(ctx, &pb.RollbackRequest{ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, Transaction: tx})
}
