package fakestore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// Fold applies the commit, unless the hook of OnFold answers otherwise.
func (s *Store) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	answer, err := s.begin(ctx, fold, c)
	if err != nil {
		return store.CommitResult{}, fmt.Errorf("%w: %w", store.ErrNotApplied, err)
	}
	if err := s.checkCommit(c); err != nil {
		return store.CommitResult{}, err
	}
	if err := s.claim(c); err != nil {
		return store.CommitResult{}, err
	}
	defer s.release(c)
	var folded store.CommitResult
	err = s.do(ctx, answer, func() (err error) {
		folded, err = s.apply(c, answer)
		return err
	})
	if err != nil {
		return store.CommitResult{}, err
	}
	return folded, nil
}

func (s *Store) apply(c *store.Commit, answer Answer) (store.CommitResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer == MarkerExists {
		s.counts.Collisions++
		return store.CommitResult{}, fmt.Errorf("fakestore: %w", store.ErrMarkerExists)
	}
	if s.opts.GrowsInFold && c.Rules < s.oldest {
		return store.CommitResult{}, fmt.Errorf("fakestore: %w", store.ErrOutdated)
	}
	for _, m := range c.Markers {
		if _, ok := s.markers[m.ID]; ok {
			s.counts.Collisions++
			return store.CommitResult{}, fmt.Errorf("fakestore: %w: %s", store.ErrMarkerExists, m.ID)
		}
	}
	at := s.commitTimeLocked()
	if err := s.journalLocked(c, at); err != nil {
		return store.CommitResult{}, err
	}
	for _, m := range c.Markers {
		s.markers[m.ID] = m
	}
	s.counts.Markers += len(c.Markers)
	if answer == NotCounted {
		return store.CommitResult{}, fmt.Errorf("fakestore: %w", store.ErrNotCounted)
	}
	keep := s.oldestLocked()
	reported := make([]store.ShardStats, len(c.Adds))
	for i, a := range c.Adds {
		key := shardKey{a.Counter, a.Shard}
		sum, _ := s.shards[key].newest()
		s.shards[key] = s.shards[key].set(at, sum.Add(int128.Of(a.Delta)), keep)
		reported[i] = s.shardStats[key]
		reported[i].Tally = max(reported[i].Tally, c.Tally) + 1
		reported[i].KnownShards = max(reported[i].KnownShards, a.Shard+1)
		if c.KnownShards != nil {
			reported[i].KnownShards = max(reported[i].KnownShards, c.KnownShards[i])
		}
		s.shardStats[key] = reported[i]
	}
	s.groupedLocked(c)
	s.bucketsLocked(c, at, keep)
	s.growLocked(c.Growths, at)
	s.changes++
	s.counts.Folds++
	s.counts.Adds += len(c.Adds)
	s.counts.Entities += c.Entities()
	s.counts.LargestFold = max(s.counts.LargestFold, c.Entities())
	if s.opts.GrowsInFold {
		reported = nil
	}
	return store.CommitResult{At: at, Shards: reported}, nil
}

// checkCommit refuses commits that Datastore refuses, and commits that no aggregator should send.
func (s *Store) checkCommit(c *store.Commit) error {
	switch {
	case c.Entities() > s.opts.Entities:
		return s.overLimit("entities in a commit", c.Entities(), s.opts.Entities)
	case len(c.Adds) > s.opts.Transforms:
		return s.overLimit("transforms in a commit", len(c.Adds), s.opts.Transforms)
	case c.Entities() == 0 && !s.opts.GrowsInFold:
		return s.mistake("an empty commit")
	}
	seen := make(map[wire.PartID]bool, len(c.Markers))
	for _, m := range c.Markers {
		if seen[m.ID] {
			return s.mistake("marker %s twice in a commit", m.ID)
		}
		if m.At.IsZero() || m.ExpireAt.IsZero() {
			return s.mistake("marker %s of %s expires at %s: both must be known", m.ID, m.At, m.ExpireAt)
		}
		seen[m.ID] = true
	}
	if c.KnownShards != nil && len(c.KnownShards) != len(c.Adds) {
		return s.mistake("%d known numbers of shards for %d adds", len(c.KnownShards), len(c.Adds))
	}
	for i := range c.Adds {
		if err := s.checkAdd(c, i); err != nil {
			return err
		}
	}
	if err := s.checkBuckets(c); err != nil {
		return err
	}
	for i, g := range c.Grouped {
		rising := slices.IsSorted(g.Indexes) && len(slices.Compact(slices.Clone(g.Indexes))) == len(g.Indexes)
		if g.Add < 0 || g.Add >= len(c.Adds) || i > 0 && g.Add <= c.Grouped[i-1].Add || len(g.Indexes) == 0 || len(g.Indexes) > store.MaxGroups || !rising || countmill.IsGroup(c.Adds[g.Add].Counter) {
			return s.mistake("grouping %d of add %d by %d", i, g.Add, g.Indexes)
		}
	}
	if err := s.checkGrowths(c.Growths); err != nil {
		return err
	}
	if err := s.checkJournal(c); err != nil {
		return err
	}
	return s.checkRecords(c)
}

func (s *Store) checkGrowths(growths []store.Growth) error {
	if len(growths) > 0 && !s.opts.GrowsInFold {
		return s.mistake("%d growths in a fold", len(growths))
	}
	for i, r := range growths {
		if err := s.checkGrowth(r); err != nil {
			return err
		}
		if i > 0 && growths[i-1].Counter >= r.Counter {
			return s.mistake("growth %d (%q) is out of order, or is listed twice", i, r.Counter)
		}
	}
	return nil
}

func (s *Store) checkAdd(c *store.Commit, i int) error {
	a := c.Adds[i]
	if err := countmill.CheckName(a.Counter); err != nil {
		return s.mistake("add %d: %v", i, err)
	}
	switch {
	case a.Delta == 0 && !hasBucket(c, i):
		return s.mistake("add %d: delta 0 for %q", i, a.Counter)
	case a.Shard < 0 || a.Shard >= countmill.MaxShards:
		return s.mistake("add %d: shard %d of %q", i, a.Shard, a.Counter)
	case a.Order != wire.Order(a.Counter):
		return s.mistake("add %d: the order is not that of %q", i, a.Counter)
	case a.Hash != wire.ShardHash(a.Counter, a.Shard):
		return s.mistake("add %d: the hash is not that of shard %d of %q", i, a.Shard, a.Counter)
	case i == 0:
		return nil
	}
	switch order := compareAdds(c.Adds[i-1], a); {
	case order == 0:
		return s.mistake("shard %d of %q twice in a commit", a.Shard, a.Counter)
	case order > 0:
		return s.mistake("add %d (%q) is out of order", i, a.Counter)
	}
	return nil
}

func compareAdds(a, b store.ShardDelta) int {
	return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Counter, b.Counter), cmp.Compare(a.Shard, b.Shard))
}

func (s *Store) checkRecords(c *store.Commit) error {
	if !s.opts.NeedRecords {
		return nil
	}
	grown := make(map[string]int64, len(c.Growths))
	for _, r := range c.Growths {
		grown[r.Counter] = int64(r.Shards)
	}
	for _, a := range c.Adds {
		s.mu.Lock()
		r, _ := s.records[a.Counter].newest()
		s.mu.Unlock()
		shards := max(r.shards, grown[a.Counter])
		if int64(a.Shard) >= shards {
			return s.mistake("a fold to shard %d of %q, whose record names %d", a.Shard, a.Counter, shards)
		}
	}
	return nil
}

// claim records the shards and markers of an open fold.
func (s *Store) claim(c *store.Commit) error {
	if !s.opts.Exclusive {
		return nil
	}
	s.mu.Lock()
	taken := make([]any, 0, c.Entities())
	var clash any
	for _, key := range touched(c) {
		if _, ok := s.open[key]; ok {
			clash = key
			break
		}
		s.open[key] = struct{}{}
		taken = append(taken, key)
	}
	if clash != nil {
		for _, key := range taken {
			delete(s.open, key)
		}
	}
	s.mu.Unlock()
	if clash != nil {
		return s.mistake("%v is in two open folds", clash)
	}
	return nil
}

func (s *Store) release(c *store.Commit) {
	if !s.opts.Exclusive {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range touched(c) {
		delete(s.open, key)
	}
}

func touched(c *store.Commit) []any {
	keys := make([]any, 0, c.Entities())
	for _, m := range c.Markers {
		keys = append(keys, m.ID)
	}
	for _, a := range c.Adds {
		keys = append(keys, shardKey{a.Counter, a.Shard})
	}
	return keys
}
