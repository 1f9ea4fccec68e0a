package datastore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/aggregator"
)

// probe finds out whether the server knows single-use commits and transforms, and how
// many entities it takes. It writes entities with random keys and removes them.
func (s *Store) probe(ctx context.Context) error {
	s.entities = maxEntities
	if s.cfg.EntityGroups || s.cfg.Commit == Classic {
		s.entities = maxGroups
	}
	if s.cfg.Commit == Classic {
		s.classic = true
		return nil
	}
	var err error
	for _, s.untallied = range []bool{false, true} {
		if err = s.tryEntities(ctx); status.Code(err) != codes.InvalidArgument {
			break
		}
	}
	if err == nil && s.untallied {
		s.cfg.Logger.Warn("this server does not take two transforms of one property: counters begin with 20 shards, and get more by `countmill raise` alone",
			"store", s.cfg.String())
	}
	if err == nil {
		return nil
	}
	s.untallied = false
	unable := errors.Is(err, aggregator.ErrNotCounted) || status.Code(err) == codes.InvalidArgument || status.Code(err) == codes.Unimplemented
	switch {
	case unable && s.cfg.Commit == Auto:
		s.cfg.Logger.Warn("this server does not know property transforms: folds read and write in a transaction, 25 entities at a time; use the Firestore emulator in Datastore mode",
			"store", s.cfg.String(), "err", err)
		s.classic, s.entities = true, maxGroups
		return nil
	case unable:
		return fmt.Errorf("%w: %s: this server does not know single-use commits with transforms; leave the commit parameter out: %w",
			aggregator.ErrDeployment, s.cfg, err)
	}
	return s.explain("probe", err)
}

// tryEntities finds out how many entities a commit takes.
func (s *Store) tryEntities(ctx context.Context) error {
	most := s.entities
	refusal := s.tryIncrements(ctx, most)
	if most <= maxGroups || status.Code(refusal) != codes.InvalidArgument {
		return refusal
	}
	err := s.tryIncrements(ctx, maxGroups)
	if err == nil {
		s.adviseGroups(refusal)
		s.entities = maxGroups
	}
	return err
}

// tryIncrements increments n new entities, one of them again, and removes them. An error
// of the service comes back as it is.
func (s *Store) tryIncrements(ctx context.Context, n int) error {
	n = min(n, maxGroups+1) // more would show nothing else
	var id [12]byte
	_, _ = rand.Read(id[:])
	increments, deletes := make([]*pb.Mutation, n), make([]*pb.Mutation, n)
	for i := range n {
		r := ref{kindProbe, hex.EncodeToString(id[:]) + ":" + strconv.Itoa(i)}
		increments[i] = s.increment(r, "probe", 3, 1, 1)
		deletes[i] = &pb.Mutation{Operation: &pb.Mutation_Delete{Delete: s.key(r)}}
	}
	resp, err := s.commitOnce(ctx, increments)
	if err != nil {
		return err
	}
	defer func() {
		if _, err := s.commitOnce(ctx, deletes); err != nil {
			s.cfg.Logger.Warn("entities of the probe not removed; they are of no other use", "kind", kindProbe, "err", err)
		}
	}()
	if err := checkResults(increments, resp); err != nil {
		return err
	}
	again := increments[:1]
	if resp, err = s.commitOnce(ctx, again); err != nil {
		return err
	}
	if err := checkResults(again, resp); err != nil {
		return err
	}
	if got := resp.GetMutationResults()[0].GetTransformResults()[resultCount].GetIntegerValue(); got != 6 {
		return fmt.Errorf("%w: 3 and 3 are %d there", aggregator.ErrNotCounted, got)
	}
	return nil
}
