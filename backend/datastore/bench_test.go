package datastore

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
)

// BenchmarkEntities writes new entities as fast as the emulator accepts them: 400 a commit, 4 commits
// at once, without a pipeline. Folding distinct counters cannot be faster. One iteration is an entity.
func BenchmarkEntities(b *testing.B) {
	shard := engine.KindID(slices.IndexFunc(protocol.Kinds, func(k engine.Kind) bool { return k.Name == "shard" }))
	field := func(name string) engine.FieldID {
		fields := protocol.Kinds[shard].Fields
		return fields[slices.IndexFunc(fields, func(f engine.FieldSpec) bool { return f.Name == name })].ID
	}
	one := func(name string) engine.Field { return engine.Field{ID: field(name), Value: engine.IntOf(1)} }
	for _, c := range []struct {
		name   string
		change engine.Change
	}{
		{"plain", engine.Change{Set: []engine.Field{one("tally")}}},
		{"one increment", engine.Change{Add: []engine.Field{one("count")}}},
		{"a fold's", engine.Change{Max: []engine.Field{one("shards"), one("tally")}, Add: []engine.Field{one("count"), one("tally")}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := openStore(b, fresh(b))
			var next atomic.Int64
			b.ResetTimer()
			var group sync.WaitGroup
			for range s.Limits().Commits {
				group.Go(func() {
					for from := int(next.Add(maxRows)) - maxRows; from < b.N; from = int(next.Add(maxRows)) - maxRows {
						changes := make([]engine.Change, min(maxRows, b.N-from))
						for i := range changes {
							changes[i] = c.change
							changes[i].Key = engine.Key{Kind: shard, Place: uint64(from+i) << 32, Name: "c"}
						}
						if _, err := s.db.Commit(b.Context(), &engine.Commit{Changes: engine.Changes(changes...)}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entities/s")
		})
	}
}

// BenchmarkFoldSeries folds without a rule and under one. A minute passes every 50 commits, so that shards keep
// several.
func BenchmarkFoldSeries(b *testing.B) {
	for _, ruled := range []bool{false, true} {
		b.Run(fmt.Sprintf("rule=%t", ruled), func(b *testing.B) {
			s := openStore(b, fresh(b))
			if ruled {
				if _, err := s.ChangeRules(b.Context(), store.RuleChange{Pattern: "*", Keep: store.Retention{Minutes: time.Hour, Quarters: 24 * time.Hour}}); err != nil {
					b.Fatal(err)
				}
			}
			first := wire.MinuteOf(time.Now())
			benchFolds(b, s, func(c *store.Commit, n int) {
				for i := range c.Adds {
					if ruled {
						c.Buckets = append(c.Buckets, store.BucketDelta{Add: i, Minute: first + wire.Minute(n/50), Delta: 1})
					}
				}
			})
		})
	}
}

// BenchmarkFoldGrouped folds with the grouped parts of some indexes, without the adds of the groups.
func BenchmarkFoldGrouped(b *testing.B) {
	for _, indexes := range [][]int64{nil, {7}, {7, 8, 9, 10}} {
		b.Run(fmt.Sprintf("indexes=%d", len(indexes)), func(b *testing.B) {
			benchFolds(b, openStore(b, fresh(b)), func(c *store.Commit, _ int) {
				for i := range c.Adds {
					if len(indexes) > 0 {
						c.Grouped = append(c.Grouped, store.Grouping{Add: i, Indexes: indexes})
					}
				}
			})
		})
	}
}

// benchFolds folds increments of 5,000 existing counters, 399 and a marker a commit, 4 commits at once that
// share no counter. One iteration is a commit. with adds to commit n.
func benchFolds(b *testing.B, s *Store, with func(c *store.Commit, n int)) {
	const each, names = maxRows - 1, 1250
	fold := func(lane, n int) {
		c := &store.Commit{Markers: []store.Marker{{ID: wire.PartID{0x10, byte(lane), byte(n), byte(n >> 8), byte(n >> 16)}, At: time.Now(), ExpireAt: time.Now().Add(time.Hour)}}}
		for i := range each {
			c.Adds = append(c.Adds, store.NewShardDelta(fmt.Sprintf("page:/articles/%d/%05d", lane, (n*each+i)%names), 0, 1))
		}
		slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int { return cmp.Compare(a.Order, b.Order) })
		with(c, n)
		if _, err := s.Fold(b.Context(), c); err != nil {
			b.Error(err)
		}
	}
	lanes := s.Limits().Commits
	var group sync.WaitGroup
	run := func(from, to int) {
		for lane := range lanes {
			group.Go(func() {
				for n := from + lane; n < to; n += lanes {
					fold(lane, n)
				}
			})
		}
		group.Wait()
	}
	warm := lanes * names / each * 2
	run(0, warm)
	b.ResetTimer()
	run(warm, warm+b.N)
	b.StopTimer()
	b.ReportMetric(float64(b.N)*each/b.Elapsed().Seconds(), "adds/s")
}
