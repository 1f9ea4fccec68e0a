package datastore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/countmill/countmill/store/engine"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// aGroup is the most entities of a commit in a database with entity groups.
const aGroup = 25

// useFirestore is the remedy for an unsuitable server.
const useFirestore = "use a database in Datastore mode of Firestore, or its emulator: gcloud emulators firestore start --database-mode=datastore-mode"

// probe refuses a server without single-use commits or transforms, and a database with entity groups.
// It writes entities with random keys and removes them.
func (d *database) probe(ctx context.Context) error {
	var err error
	for _, d.oneOfTwo = range []bool{false, true} {
		if err = d.tryIncrements(ctx, aGroup+1); status.Code(err) != codes.InvalidArgument {
			break
		}
	}
	switch {
	case err == nil && d.oneOfTwo:
		d.cfg.Logger.Warn("this server does not accept two transforms of one property: counters begin with 20 shards, and only `countmill grow` adds more",
			"store", d.cfg.String())
		return nil
	case err == nil:
		return nil
	case status.Code(err) == codes.InvalidArgument && d.tryIncrements(ctx, 1) == nil:
		return fmt.Errorf("%w: %s takes %d entities a commit and has no TTL policy, as in the mode OPTIMISTIC_WITH_ENTITY_GROUPS: "+
			"set its concurrency mode to PESSIMISTIC, or use another database: %w", engine.ErrDeployment, d.cfg, aGroup, err)
	case errors.Is(err, engine.ErrNotCounted) || status.Code(err) == codes.InvalidArgument || status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("%w: %s: this server does not know single-use commits with transforms; %s: %w", engine.ErrDeployment, d.cfg, useFirestore, err)
	}
	return d.explain("probe", err, false)
}

const kindProbe = prefix + "Probe"

// tryIncrements increments n new entities, one of them twice, and removes them. It returns an error of
// the service unchanged.
func (d *database) tryIncrements(ctx context.Context, n int) error {
	var id [12]byte
	_, _ = rand.Read(id[:])
	increments, deletes := make([]*pb.Mutation, n), make([]*pb.Mutation, n)
	for i := range n {
		r := ref{kindProbe, hex.EncodeToString(id[:]) + ":" + strconv.Itoa(i)}
		increments[i], deletes[i] = d.increment(r), d.remove(r)
	}
	resp, err := d.commit(ctx, nil, increments)
	if err != nil {
		return err
	}
	defer func() {
		if _, err := d.commit(ctx, nil, deletes); err != nil {
			d.cfg.Logger.Warn("entities of the probe were not removed; you may delete them", "kind", kindProbe, "err", err)
		}
	}()
	if err := checkResults(increments, resp); err != nil {
		return err
	}
	again := increments[:1]
	if resp, err = d.commit(ctx, nil, again); err != nil {
		return err
	}
	if err := checkResults(again, resp); err != nil {
		return err
	}
	if got := resp.GetMutationResults()[0].GetTransformResults()[0].GetIntegerValue(); got != 6 {
		return fmt.Errorf("%w: it adds 3 and 3 to %d", engine.ErrNotCounted, got)
	}
	return nil
}

// increment adds 3, as a fold does.
func (d *database) increment(r ref) *pb.Mutation {
	m := &pb.Mutation{
		Operation:          &pb.Mutation_Upsert{Upsert: &pb.Entity{Key: d.key(r)}},
		PropertyMask:       &pb.PropertyMask{Paths: []string{noProperty}},
		PropertyTransforms: []*pb.PropertyTransform{plus("count", integer(3))},
	}
	if !d.oneOfTwo {
		m.PropertyTransforms = append(m.PropertyTransforms,
			&pb.PropertyTransform{Property: "tally", TransformType: &pb.PropertyTransform_Maximum{Maximum: integer(1)}}, plus("tally", integer(1)))
	}
	return m
}
