package datastore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// BenchmarkEntities writes new entities as fast as the emulator accepts them: 400 a commit, 4 commits
// at once, without a pipeline. Folding distinct counters cannot be faster. One iteration is an entity.
func BenchmarkEntities(b *testing.B) {
	for _, c := range []struct {
		name     string
		mutation func(s *Store, r ref) *pb.Mutation
	}{
		{"plain", func(s *Store, r ref) *pb.Mutation {
			return &pb.Mutation{Operation: &pb.Mutation_Upsert{Upsert: &pb.Entity{
				Key: s.key(r), Properties: map[string]*pb.Value{"counter": indexedText("c"), "count": integer(1)},
			}}}
		}},
		{"one increment", func(s *Store, r ref) *pb.Mutation {
			m := s.increment(r, "c", 1, 0, 1)
			m.PropertyTransforms = m.PropertyTransforms[:1]
			return m
		}},
		{"a fold's", func(s *Store, r ref) *pb.Mutation { return s.increment(r, "c", 1, 0, 1) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := openStore(b, fresh(b))
			var at sync.Mutex
			next := 0
			take := func() (from, to int) {
				at.Lock()
				defer at.Unlock()
				from, next = next, min(next+maxEntities, b.N)
				return from, next
			}
			b.ResetTimer()
			var group sync.WaitGroup
			for range s.Limits().Commits {
				group.Go(func() {
					for from, to := take(); from < to; from, to = take() {
						mutations := make([]*pb.Mutation, 0, to-from)
						for i := from; i < to; i++ {
							mutations = append(mutations, c.mutation(s, ref{kindProbe, strconv.Itoa(i)}))
						}
						if _, err := s.commitOnce(b.Context(), mutations); err != nil {
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
	const each, names = maxEntities - 1, 1250
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

// foldPages makes n shards, one for each counter.
func foldPages(b *testing.B, s *Store, n int) {
	for i := range n / maxEntities {
		c := &store.Commit{}
		for j := range maxEntities {
			c.Adds = append(c.Adds, store.NewShardDelta(fmt.Sprintf("page:%02d:%07d", j%20, i*maxEntities+j), 0, 1))
		}
		if _, err := s.Fold(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}

// received notes the bytes of answers on the wire.
type received struct {
	stats.Handler
	most, all atomic.Int64
}

func (r *received) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (r *received) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		r.all.Add(int64(in.WireLength))
		r.most.Store(max(r.most.Load(), int64(in.WireLength)))
	}
}
func (r *received) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (r *received) HandleConn(context.Context, stats.ConnStats)                       {}

// BenchmarkUngroupedPage reads pages of several sizes of some shards, none of which is grouped. One iteration is
// a page.
func BenchmarkUngroupedPage(b *testing.B) {
	n := 20_000
	if text := os.Getenv("COUNTMILL_BENCH_SHARDS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	var in received
	cfg := fresh(b)
	cfg.DialOptions = []grpc.DialOption{grpc.WithStatsHandler(&in)}
	s := openStore(b, cfg)
	foldPages(b, s, n)
	x, err := store.ParseIndex("bench", "page:{x}", "b:{x}")
	if err != nil {
		b.Fatal(err)
	}
	x.Number = 3
	p := store.IndexRange{Index: 3, ID: 1, To: math.MaxUint64}
	for _, size := range []int{100, 1000, 5000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			b.ReportAllocs()
			in.all.Store(0)
			in.most.Store(0)
			from, read := "", 0
			for b.Loop() {
				page, err := s.Ungrouped(b.Context(), &x, &p, from, size)
				if err != nil {
					b.Fatal(err)
				}
				from, read = page.Next, read+page.Shards
			}
			b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "shards/s")
			b.ReportMetric(float64(in.all.Load())/float64(b.N), "received-B/op")
			b.ReportMetric(float64(in.most.Load()), "largest-answer-B")
		})
	}
}

// BenchmarkIndexWork reads 8,000 shards in pages of 1,000, of which the index has all or one in twenty, and sets
// 10,000 remainders.
func BenchmarkIndexWork(b *testing.B) {
	s := openStore(b, fresh(b))
	const n = 8_000
	foldPages(b, s, n)
	for _, match := range []string{"page:{x}", "page:00:{x}"} {
		x, err := store.ParseIndex("bench", match, "b:{x}")
		if err != nil {
			b.Fatal(err)
		}
		x.Number = 3
		p := store.IndexRange{Index: 3, ID: 1, To: math.MaxUint64}
		b.Run(match, func(b *testing.B) {
			for b.Loop() {
				for from, first := "", true; first || from != ""; first = false {
					page, err := s.Ungrouped(b.Context(), &x, &p, from, maxKeys)
					if err != nil {
						b.Fatal(err)
					}
					from = page.Next
				}
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "shards/s")
		})
	}
	b.Run("remainders", func(b *testing.B) {
		p := store.IndexRange{Index: createIndex(b, s).Number, ID: 2, To: math.MaxUint64}
		if err := s.SwapRanges(b.Context(), nil, []store.IndexRange{p}); err != nil && !errors.Is(err, store.ErrChanged) {
			b.Fatal(err)
		}
		for round := int64(1); b.Loop(); round++ {
			for i := 0; i < 10_000; i += maxRemainders {
				var remainders []store.GroupRemainder
				for j := range maxRemainders {
					remainders = append(remainders, store.GroupRemainder{Group: fmt.Sprintf("=b:%07d", i+j), Remainder: int128.Of(round * int64(i+j+1))})
				}
				if err := s.SetRemainders(b.Context(), &p, remainders); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "remainders/s")
	})
}
