package datastore

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
)

// Fold applies the commit in one call.
func (s *Store) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	may := s.write
	if len(c.Adds) == 0 {
		may = s.call // a process that only reads totals may settle dead letters
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
	addGrouped(mutations[len(c.Markers):], c)
	mutations = s.addBuckets(mutations, c)
	mutations = s.addJournal(mutations, c)
	resp, err := s.commitOnce(ctx, mutations)
	if err != nil {
		return store.CommitResult{}, s.explain("fold", err)
	}
	if err := checkResults(mutations, resp); err != nil {
		return store.CommitResult{}, s.explain("fold", err)
	}
	s.reportOverflow(c, resp)
	s.noteBuckets(c, mutations, resp)
	return store.CommitResult{At: commitTime(resp), Shards: s.statsOf(shardResults(c, resp))}, s.confirm(ctx, "fold")
}

// shardResults returns the results of the adds, which come between those of the markers and those of
// the archive and the journal.
func shardResults(c *store.Commit, resp *pb.CommitResponse) []*pb.MutationResult {
	return resp.GetMutationResults()[len(c.Markers):][:len(c.Adds)]
}

// statsOf reads each shard's statistics from its result.
func (s *Store) statsOf(results []*pb.MutationResult) []store.ShardStats {
	stats := make([]store.ShardStats, len(results))
	for i, r := range results {
		values := r.GetTransformResults()
		stats[i].KnownShards = int(values[resultShards].GetIntegerValue())
		if !s.untallied {
			stats[i].Tally = values[resultTally].GetIntegerValue()
		}
	}
	return stats
}

// knownOf returns a lower bound for the number of shards: the add itself names one.
func knownOf(c *store.Commit, i int) int {
	if c.KnownShards == nil {
		return c.Adds[i].Shard + 1
	}
	return c.KnownShards[i]
}

// reportOverflow logs an error when a count has reached an end of int64, where increments have no more
// effect. Readers refuse to show such a count; a later delta may move it away again.
func (s *Store) reportOverflow(c *store.Commit, resp *pb.CommitResponse) {
	for i, r := range shardResults(c, resp) {
		if n := r.GetTransformResults()[resultCount].GetIntegerValue(); saturated(n) {
			s.cfg.Logger.Error("a shard does not fit 64 bits; its counter has no total now",
				"store", s.cfg.String(), "counter", c.Adds[i].Counter, "shard", c.Adds[i].Shard)
		}
	}
}

// The transforms of an increment, and so their results, have this order.
const (
	resultCount = iota
	resultShards
	_
	resultTally
)

// increment adds delta to the count of a shard, and updates its statistics (store.ShardStats). No other
// function may build this mutation. Without the mask the upsert would clear the count first, and
// without its mark the count would be indexed.
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

// insertMarkers sorts the markers. Commits that share markers then lock them in the same order and
// queue up, instead of waiting for each other in a circle. The adds are already sorted.
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
		mutations = append(mutations, s.insert(ref{kindApplied, m.ID.String()}, properties))
	}
	return mutations
}
