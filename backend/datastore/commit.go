package datastore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/protobuf/proto"
)

// maxCommit is the most bytes of a commit that this package may split. The service takes 10 MiB, the
// emulators' gRPC servers 4 MiB.
const maxCommit = 3 << 20

var readWrite = &pb.TransactionOptions{Mode: &pb.TransactionOptions_ReadWrite_{ReadWrite: &pb.TransactionOptions_ReadWrite{}}}

// commitOnce applies the mutations in one call, all of them or none.
func (s *Store) commitOnce(ctx context.Context, mutations []*pb.Mutation) (*pb.CommitResponse, error) {
	return s.commit(ctx, &pb.CommitRequest{
		TransactionSelector: &pb.CommitRequest_SingleUseTransaction{SingleUseTransaction: readWrite},
		Mutations:           mutations,
	})
}

// commitIn applies the mutations and ends the transaction.
func (s *Store) commitIn(ctx context.Context, tx []byte, mutations []*pb.Mutation) (*pb.CommitResponse, error) {
	return s.commit(ctx, &pb.CommitRequest{
		TransactionSelector: &pb.CommitRequest_Transaction{Transaction: tx}, Mutations: mutations,
	})
}

func (s *Store) commit(ctx context.Context, req *pb.CommitRequest) (*pb.CommitResponse, error) {
	req.ProjectId, req.DatabaseId, req.Mode = s.cfg.Project, s.cfg.Database, pb.CommitRequest_TRANSACTIONAL
	return s.stub.Commit(ctx, req)
}

// commitLots applies mutations in order, in as few commits as the limits allow. The mutations must be
// repeatable, and need not be applied together.
func (s *Store) commitLots(ctx context.Context, mutations []*pb.Mutation) error {
	for len(mutations) > 0 {
		n, size := 0, 0
		for n < len(mutations) && n < s.lot {
			if size += proto.Size(mutations[n]); size > maxCommit && n > 0 {
				break
			}
			n++
		}
		if _, err := s.commitOnce(ctx, mutations[:n]); err != nil {
			return err
		}
		mutations = mutations[n:]
	}
	return nil
}

// commitTime returns the time of the commit, or zero if the server does not report it.
func commitTime(resp *pb.CommitResponse) time.Time {
	if resp.GetCommitTime() == nil {
		return time.Time{}
	}
	return resp.GetCommitTime().AsTime()
}

// checkResults checks that the server applied the transforms. A server that does not support them
// ignores them and answers OK.
func checkResults(mutations []*pb.Mutation, resp *pb.CommitResponse) error {
	results := resp.GetMutationResults()
	if len(results) != len(mutations) {
		return fmt.Errorf("%w: %d results for %d mutations", store.ErrNotCounted, len(results), len(mutations))
	}
	for i, m := range mutations {
		want := len(m.GetPropertyTransforms())
		got := results[i].GetTransformResults()
		if len(got) != want || slices.ContainsFunc(got, func(v *pb.Value) bool { return !isInteger(v) }) {
			return fmt.Errorf("%w: %d of %d transform results for entity %q", store.ErrNotCounted, len(got), want,
				refOf(m.GetUpsert().GetKey()).name)
		}
	}
	return nil
}

func isInteger(v *pb.Value) bool {
	_, ok := v.GetValueType().(*pb.Value_IntegerValue)
	return ok
}
