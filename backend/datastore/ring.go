package datastore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/wire"
)

// ring is the ring of every store.
var ring = store.Ring{Buckets: store.SeriesBuckets, Window: store.SeriesRing, Minutes: store.SeriesMinutes}

// addBuckets adds the buckets of a commit: young ones to the mutations of their shards, others as
// mutations of the archive at the end. mutations are those of the markers and the adds.
func (s *Store) addBuckets(mutations []*pb.Mutation, c *store.Commit) []*pb.Mutation {
	adds := mutations[len(c.Markers):]
	for buckets := c.Buckets; len(buckets) > 0; {
		a := buckets[0].Add
		n := 1
		for n < len(buckets) && buckets[n].Add == a {
			n++
		}
		old := 0
		for old < n && buckets[old].Minute < c.Archive {
			old++
		}
		s.addToShard(adds[a], &c.Adds[a], buckets[old:n])
		mutations = s.archiveBuckets(mutations, c.Adds[a].Counter, buckets[:old])
		buckets = buckets[n:]
	}
	return mutations
}

// addToShard adds the young buckets of an add to the mutation of its shard. All of the add is bucketed,
// also where some of its buckets are old.
func (s *Store) addToShard(m *pb.Mutation, a *store.ShardDelta, young []store.BucketDelta) {
	m.PropertyTransforms = append(m.PropertyTransforms, plus("bucketed", a.Delta))
	fresh := int64(0)
	for _, b := range young {
		if m.PropertyTransforms = append(m.PropertyTransforms, plus(slot{minute: b.Minute}.property(), b.Delta)); s.recent.isNew(a.Hash, b.Minute) {
			fresh++
		}
	}
	if fresh > 0 {
		m.PropertyTransforms = append(m.PropertyTransforms, plus(bucketCount, fresh))
	}
}

// bucketCount is the property with about how many buckets a shard has. It is too large where several
// processes fold to a shard in one minute. Only moves read it.
const bucketCount = "buckets"

func plus(property string, n int64) *pb.PropertyTransform {
	return &pb.PropertyTransform{Property: property, TransformType: &pb.PropertyTransform_Increment{Increment: integer(n)}}
}

// archiveBuckets adds buckets that are too old for the ring to the archive.
func (s *Store) archiveBuckets(mutations []*pb.Mutation, counter string, old []store.BucketDelta) []*pb.Mutation {
	sums := make([]slotSum, len(old))
	for i, b := range old {
		sums[i] = slotSum{slot{minute: b.Minute}, b.Delta}
	}
	return s.addToArchive(mutations, counter, sums, func(d seriesDay) wire.Minute { return (d + 1).first() })
}

// addToArchive adds sums of a counter, in the order of their slots, as a mutation for each day. due is
// when a sweep has to look at the day.
func (s *Store) addToArchive(mutations []*pb.Mutation, counter string, sums []slotSum, due func(seriesDay) wire.Minute) []*pb.Mutation {
	for len(sums) > 0 {
		d := sums[0].day()
		m := s.archiveDay(archiveRef(counter, d), due(d))
		for len(sums) > 0 && sums[0].day() == d {
			// The archive is only ever added to: a set would lose what others have added.
			m.PropertyTransforms = append(m.PropertyTransforms, plus(sums[0].property(), sums[0].sum))
			sums = sums[1:]
		}
		mutations = append(mutations, m)
	}
	return mutations
}

// archiveDay is a mutation of a day that changes only due.
func (s *Store) archiveDay(r ref, due wire.Minute) *pb.Mutation {
	return &pb.Mutation{
		Operation: &pb.Mutation_Upsert{Upsert: &pb.Entity{
			Key: s.key(r), Properties: map[string]*pb.Value{"due": indexedInteger(int64(due))},
		}},
		PropertyMask: &pb.PropertyMask{Paths: []string{"due"}},
	}
}

// noteBuckets notes the shards that have too many buckets now.
func (s *Store) noteBuckets(c *store.Commit, mutations []*pb.Mutation, resp *pb.CommitResponse) {
	if len(c.Buckets) == 0 {
		return
	}
	results := shardResults(c, resp)
	for i, m := range mutations[len(c.Markers):][:len(c.Adds)] {
		last := len(m.GetPropertyTransforms()) - 1
		if m.GetPropertyTransforms()[last].GetProperty() != bucketCount {
			continue
		}
		if n := results[i].GetTransformResults()[last].GetIntegerValue(); n > int64(s.ring.Buckets) {
			s.crowded.note(store.Key{Counter: c.Adds[i].Counter, Shard: c.Adds[i].Shard})
		}
	}
}

// A recent remembers the buckets that this process has folded to lately. It forgets some early.
type recent struct {
	mu      sync.Mutex
	buckets [1 << 16]uint64
}

// isNew reports whether it does not remember a bucket of the shard with a wire.ShardHash, and remembers
// it.
func (r *recent) isNew(shard uint64, m wire.Minute) bool {
	bucket := (shard ^ uint64(m)) * 0x9e3779b97f4a7c15 // Fibonacci hashing (Knuth, volume 3, 6.4)
	r.mu.Lock()
	defer r.mu.Unlock()
	at := &r.buckets[bucket>>48]
	if *at == bucket {
		return false
	}
	*at = bucket
	return true
}

// crowded are shards with too many buckets.
type crowded struct {
	mu     sync.Mutex
	shards map[store.Key]struct{}
}

// mostCrowded bounds them. A fold of a later minute finds a shard that was left out again.
const mostCrowded = 10_000

func (c *crowded) note(k store.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shards == nil {
		c.shards = make(map[store.Key]struct{})
	}
	if len(c.shards) < mostCrowded {
		c.shards[k] = struct{}{}
	}
}

func (c *crowded) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.shards) == 0
}

func (c *crowded) take() map[store.Key]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	shards := c.shards
	c.shards = nil
	return shards
}

// MoveSeries moves the buckets of the shards that folds of this process have found crowded. Several
// processes may find the same shard: the first one moves it.
func (s *Store) MoveSeries(ctx context.Context) (moved int, err error) {
	rules, shards, err := s.takeCrowded(ctx)
	inARow := 0
	for k := range shards {
		if inARow == sweepErrors || ctx.Err() != nil {
			s.crowded.note(k) // for the next call
			continue
		}
		did, problem := s.moveShard(ctx, k, rules)
		switch {
		case problem != nil:
			inARow, err = inARow+1, problem
			s.crowded.note(k)
		case did:
			inARow, moved = 0, moved+1
		}
	}
	return moved, err
}

// takeCrowded returns the shards to move, and the rules. If there are none, it reads nothing.
func (s *Store) takeCrowded(ctx context.Context) (*store.Rules, map[store.Key]struct{}, error) {
	ctx, cancel, err := s.call(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	if err := ctx.Err(); err != nil || s.crowded.none() {
		return nil, nil, err
	}
	m, _, err := s.compareMeta(ctx)
	if err != nil {
		return nil, nil, err
	}
	return m.settings.Rules, s.crowded.take(), nil
}

// mostMoved is the most buckets of a transaction: the service takes 500 transforms of an entity.
const mostMoved = 400

// moveShard moves the buckets of a shard to the archive, in one transaction that reads them. A fold in
// between makes it fail, or waits until it has ended and then makes its bucket anew.
func (s *Store) moveShard(ctx context.Context, k store.Key, rules *store.Rules) (did bool, err error) {
	ctx, cancel, err := s.write(ctx)
	if err != nil {
		return false, err
	}
	defer cancel()
	r := readerRef(k)
	err = s.readModifyWrite(ctx, []ref{r}, func(found map[ref]*pb.Entity, _ time.Time) ([]*pb.Mutation, error) {
		e := found[r]
		if e == nil {
			return nil, nil
		}
		f := fields{entity: e}
		if !f.has(bucketCount) || f.integer(bucketCount) <= int64(s.ring.Buckets) {
			return nil, f.err // another process has moved it
		}
		buckets, err := bucketsOf(e)
		if err != nil {
			return nil, err
		}
		did = true
		return s.move(r, k.Counter, buckets, rules), nil
	})
	if err != nil {
		return false, fmt.Errorf("move the series of counter %q: %w", k.Counter, err)
	}
	if did {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "series moved", slog.String("counter", k.Counter), slog.Int("shard", k.Shard))
	}
	return did, nil
}

// move makes the mutations that remove buckets from a shard, exactly as they were read, and add them to
// the archive.
func (s *Store) move(shard ref, counter string, buckets []slotSum, rules *store.Rules) []*pb.Mutation {
	left := max(len(buckets)-mostMoved, 0)
	buckets = buckets[:len(buckets)-left]
	removed := []string{bucketCount}
	for _, b := range buckets {
		removed = append(removed, b.property())
	}
	buckets = slices.DeleteFunc(buckets, func(b slotSum) bool { return b.sum == 0 })
	mutations := []*pb.Mutation{{
		Operation: &pb.Mutation_Upsert{Upsert: &pb.Entity{
			Key: s.key(shard), Properties: map[string]*pb.Value{bucketCount: integer(int64(left))},
		}},
		PropertyMask: &pb.PropertyMask{Paths: removed}, // a named property without a value is removed
	}}
	keep := rules.KeepOf(counter)
	return s.addToArchive(mutations, counter, buckets, func(d seriesDay) wire.Minute { return joinsAt(d, keep) })
}
