package datastore

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
)

// Fold applies the commit in one call.
func (s *Store) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	may := s.write
	if len(c.Adds) == 0 {
		may = s.call // who only reads totals may decide about letters
	}
	ctx, cancel, err := may(ctx)
	if err != nil {
		return store.CommitResult{}, notApplied(err)
	}
	defer cancel()
	if n := c.Entities(); n > maxEntities {
		return store.CommitResult{}, fmt.Errorf("%w: a commit of %d entities (limit: %d)", store.ErrRefused, n, maxEntities)
	}
	mutations := s.insertMarkers(c.Markers)
	for i := range c.Adds {
		a := &c.Adds[i]
		mutations = append(mutations, s.increment(shardRef(a.Hash, a.Counter, a.Shard), a.Counter, a.Delta, c.Tally, knownOf(c, i)))
	}
	resp, err := s.commitOnce(ctx, mutations)
	if err != nil {
		return store.CommitResult{}, s.explain("fold", err)
	}
	if err := checkResults(mutations, resp); err != nil {
		return store.CommitResult{}, s.explain("fold", err)
	}
	s.reportOverflow(c, resp)
	return store.CommitResult{At: commitTime(resp), Shards: s.toldBy(resp, len(c.Markers))}, s.confirm(ctx, "fold")
}

// toldBy takes out of the answer what each shard tells. The markers' results come first.
func (s *Store) toldBy(resp *pb.CommitResponse, markers int) []store.ShardStats {
	results := resp.GetMutationResults()[markers:]
	told := make([]store.ShardStats, len(results))
	for i, r := range results {
		values := r.GetTransformResults()
		told[i].KnownShards = int(values[resultShards].GetIntegerValue())
		if !s.untallied {
			told[i].Tally = values[resultTally].GetIntegerValue()
		}
	}
	return told
}

// knownOf is at least what the add itself shows.
func knownOf(c *store.Commit, i int) int {
	if c.KnownShards == nil {
		return c.Adds[i].Shard + 1
	}
	return c.KnownShards[i]
}

// reportOverflow calls for a person when a count has come to either end of int64, where
// increments stop: readers refuse to show it, but a later delta may lead it off again.
func (s *Store) reportOverflow(c *store.Commit, resp *pb.CommitResponse) {
	for i, r := range resp.GetMutationResults()[len(c.Markers):] {
		if n := r.GetTransformResults()[resultCount].GetIntegerValue(); n == math.MaxInt64 || n == math.MinInt64 {
			s.cfg.Logger.Error("a shard does not fit 64 bits any more; its counter has no total any more",
				"store", s.cfg.String(), "counter", c.Adds[i].Counter, "shard", c.Adds[i].Shard)
		}
	}
}

// The transforms of an increment, and so their results, come in this order.
const (
	resultCount = iota
	resultShards
	_
	resultTally
)

// increment adds delta to the count of a shard, and tells it what store.ShardStats is about.
// It is the only function that builds this mutation: without the mask the upsert would wipe
// the count first, and an operand that is not marked would have the count indexed.
func (s *Store) increment(r ref, counter string, delta, tally int64, known int) *pb.Mutation {
	m := &pb.Mutation{
		Operation: &pb.Mutation_Upsert{Upsert: &pb.Entity{
			Key: s.key(r), Properties: map[string]*pb.Value{"counter": indexedText(counter)},
		}},
		PropertyMask: &pb.PropertyMask{Paths: []string{"counter"}},
		PropertyTransforms: []*pb.PropertyTransform{
			{Property: "count", TransformType: &pb.PropertyTransform_Increment{Increment: integer(delta)}},
			{Property: "shards", TransformType: &pb.PropertyTransform_Maximum{Maximum: integer(int64(known))}},
		},
	}
	if !s.untallied {
		m.PropertyTransforms = append(m.PropertyTransforms,
			&pb.PropertyTransform{Property: "tally", TransformType: &pb.PropertyTransform_Maximum{Maximum: integer(tally)}},
			&pb.PropertyTransform{Property: "tally", TransformType: &pb.PropertyTransform_Increment{Increment: integer(1)}})
	}
	return m
}

// insertMarkers sorts them: commits that share markers then meet in one order and queue
// up, instead of waiting for each other in a circle. The adds come sorted.
func (s *Store) insertMarkers(markers []store.Marker) []*pb.Mutation {
	sorted := slices.Clone(markers)
	slices.SortFunc(sorted, func(a, b store.Marker) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	mutations := make([]*pb.Mutation, 0, len(sorted)+maxEntities)
	for i := range sorted {
		m := &sorted[i]
		properties := map[string]*pb.Value{
			"fingerprint": integer(int64(m.Fingerprint)),
			"fold":        integer(int64(m.Fold)),
			"expire_at":   instant(m.ExpireAt),
		}
		if m.Whole {
			properties["whole"] = boolean(true)
		}
		mutations = append(mutations, &pb.Mutation{Operation: &pb.Mutation_Insert{Insert: &pb.Entity{
			Key: s.key(ref{kindApplied, m.ID.String()}), Properties: properties,
		}}})
	}
	return mutations
}
