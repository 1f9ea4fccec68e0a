package datastore

import (
	"context"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
)

// rollbackTimeout bounds the rollback of a transaction.
const rollbackTimeout = 5 * time.Second

// A planFunc makes the mutations of a transaction from the entities that it read, and from their time.
type planFunc func(found map[ref]*pb.Entity, when time.Time) ([]*pb.Mutation, error)

// readModifyWrite makes one attempt at a transaction. It applies nothing if plan returns an error or no
// mutations.
func (s *Store) readModifyWrite(ctx context.Context, refs []ref, plan planFunc) error {
	return s.transaction(ctx, func(tx []byte) ([]*pb.Mutation, error) {
		found, when, err := s.lookupIn(ctx, tx, refs)
		if err != nil {
			return nil, s.explain("read in a transaction", err)
		}
		return plan(found, when)
	})
}

// transaction is readModifyWrite for a function that reads in the transaction itself.
func (s *Store) transaction(ctx context.Context, do func(tx []byte) ([]*pb.Mutation, error)) error {
	begun, err := s.stub.BeginTransaction(ctx, &pb.BeginTransactionRequest{
		ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, TransactionOptions: readWrite,
	})
	if err != nil {
		return s.explain("begin a transaction", err)
	}
	tx := begun.GetTransaction()
	mutations, err := do(tx)
	if err != nil || len(mutations) == 0 {
		s.rollback(ctx, tx)
		return err
	}
	if _, err := s.commitIn(ctx, tx, mutations); err != nil {
		s.rollback(ctx, tx)
		return s.explain("commit a transaction", err)
	}
	return nil
}

// in makes options for reading in a transaction.
func in(tx []byte) *pb.ReadOptions {
	return &pb.ReadOptions{ConsistencyType: &pb.ReadOptions_Transaction{Transaction: tx}}
}

// lookupIn reads in a transaction. It also returns the time of the first answer.
func (s *Store) lookupIn(ctx context.Context, tx []byte, refs []ref) (all map[ref]*pb.Entity, when time.Time, err error) {
	all = make(map[ref]*pb.Entity, len(refs))
	for len(refs) > 0 {
		found, deferred, resp, err := s.lookup(ctx, in(tx), refs)
		if err != nil {
			return nil, time.Time{}, err
		}
		if err := s.timed(resp.GetReadTime()); err != nil {
			return nil, time.Time{}, err
		}
		for r, e := range found {
			all[r] = e
		}
		if when.IsZero() {
			when = resp.GetReadTime().AsTime()
		}
		refs = deferred
	}
	return all, when, nil
}

// rollback releases the transaction's locks: others would wait until the server ends it. Its result
// does not matter.
func (s *Store) rollback(ctx context.Context, tx []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = s.stub.Rollback(ctx, &pb.RollbackRequest{ProjectId: s.cfg.Project, DatabaseId: s.cfg.Database, Transaction: tx})
}
