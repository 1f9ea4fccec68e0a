package rows

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
)

// The kinds and fields of a store of counters.
const (
	marker engine.KindID = iota
	record
	shard
	day
)

const (
	shards      engine.FieldID = 1
	count       engine.FieldID = 6
	bucketed    engine.FieldID = 7
	due         engine.FieldID = 10
	fingerprint engine.FieldID = 11
	fold        engine.FieldID = 12
	minute      engine.FieldID = 1 << 28
)

func counterKinds() engine.Kinds {
	narrow := func(id engine.FieldID, name string) engine.FieldSpec { return engine.FieldSpec{ID: id, Name: name} }
	wide := func(id engine.FieldID, name string) engine.FieldSpec {
		return engine.FieldSpec{ID: id, Name: name, Wide: true, Open: id == minute}
	}
	return engine.Kinds{
		marker: {Name: "marker", Class: engine.Once, Binary: true, Due: due, Expires: true, Fields: []engine.FieldSpec{
			narrow(due, "due"), narrow(fingerprint, "fingerprint"), narrow(fold, "fold"),
		}},
		record: {Name: "record", Class: engine.Sums, ByName: true, Fields: []engine.FieldSpec{narrow(shards, "shards")}},
		shard: {Name: "shard", Class: engine.Sums, Places: true, Parts: true, Fields: []engine.FieldSpec{
			wide(count, "count"), wide(bucketed, "bucketed"), wide(minute, "m"),
		}},
		day: {Name: "day", Class: engine.Sums, Places: true, Parts: true, Fields: []engine.FieldSpec{wide(minute, "m")}},
	}
}

// benchAdds returns n commits of size adds each, of a million names, in the order of shards.
func benchAdds(n, size int) [][]store.ShardDelta {
	random := mathrand.New(mathrand.NewPCG(1, 1))
	all := make([]store.ShardDelta, 1_000_000)
	for i := range all {
		all[i] = store.NewShardDelta(fmt.Sprintf("page:/articles/%07d", i), 0, int64(1+i%9))
	}
	commits := make([][]store.ShardDelta, n)
	for i := range commits {
		chosen := make(map[int]bool, size)
		for len(chosen) < size {
			if at := random.IntN(len(all)); !chosen[at] {
				chosen[at] = true
				commits[i] = append(commits[i], all[at])
			}
		}
		slices.SortFunc(commits[i], func(a, b store.ShardDelta) int { return cmp.Compare(a.Order, b.Order) })
	}
	return commits
}

// drawIDs draws the ids of new parts, in their order.
func drawIDs(ids []wire.PartID) {
	wire.RandomIDs(rand.Reader, wire.AnonymousClass, ids)
	slices.SortFunc(ids, func(a, b wire.PartID) int { return bytes.Compare(a[:], b[:]) })
}

// changes are those of a fold.
func changes(ids []wire.PartID, adds []store.ShardDelta, n uint64, at time.Time, m wire.Minute, ruled bool) iter.Seq[*engine.Change] {
	return func(yield func(*engine.Change) bool) {
		c := engine.Change{Op: engine.Insert, Set: []engine.Field{
			{ID: due, Value: engine.IntOf(at.UnixMicro())}, {ID: fingerprint, Value: engine.IntOf(1 << 60)}, {ID: fold, Value: engine.IntOf(int64(n))},
		}}
		for i := range ids {
			c.Key = engine.Key{Kind: marker, Name: string(ids[i][:])}
			if !yield(&c) {
				return
			}
		}
		c = engine.Change{Add: []engine.Field{{ID: count}, {ID: bucketed}}[:1]}
		if ruled {
			c.Add = c.Add[:2]
		}
		for i := range adds {
			c.Key = engine.Key{Kind: shard, Place: adds[i].Order, Name: adds[i].Counter}
			for j := range c.Add {
				c.Add[j].Value = engine.IntOf(adds[i].Delta)
			}
			if !yield(&c) {
				return
			}
		}
		if !ruled {
			return
		}
		today := uint64(m) / (24 * 60)
		c.Add = []engine.Field{{ID: minute + engine.FieldID(m)}}
		for i := range adds {
			c.Key = engine.Key{Kind: day, Place: today<<44 | adds[i].Order>>20, Name: adds[i].Counter, Part: uint32(today)}
			c.Add[0].Value = engine.IntOf(adds[i].Delta)
			if !yield(&c) {
				return
			}
		}
	}
}

// A folder folds n with one of both stores.
type folder interface {
	fold(ctx context.Context, n int, adds []store.ShardDelta, ids []wire.PartID, ruled bool) error
	// grow makes a record, in a transaction.
	grow(ctx context.Context, counter string) error
	logged() uint64
}

type rowFolder struct{ e *Engine }

func (f rowFolder) fold(ctx context.Context, n int, adds []store.ShardDelta, ids []wire.PartID, ruled bool) error {
	now := time.Now()
	_, err := f.e.Commit(ctx, &engine.Commit{Changes: changes(ids, adds, uint64(n), now, wire.MinuteOf(now)+wire.Minute(n/100), ruled)})
	return err
}

func (f rowFolder) grow(ctx context.Context, counter string) error {
	_, err := f.e.Transact(ctx, false, func(tx engine.Tx) error {
		key := engine.Key{Kind: record, Name: counter}
		rows, err := tx.Get(ctx, []engine.Key{key}, shards)
		if err == nil {
			tx.Change(&engine.Change{Key: key, Max: []engine.Field{{ID: shards, Value: engine.IntOf(rows[0].Int64(shards) + 1)}}})
		}
		return err
	})
	return err
}

func (f rowFolder) logged() uint64 { return f.e.db.Metrics().WAL.BytesWritten }

type folding interface {
	Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error)
	GrowCounter(ctx context.Context, counter string, shards int) (int, error)
}

type storeFolder struct {
	s  folding
	db *pebbledb.DB
}

func (f storeFolder) fold(ctx context.Context, n int, adds []store.ShardDelta, ids []wire.PartID, ruled bool) error {
	now := time.Now()
	c := &store.Commit{Rules: store.AnyRules, Adds: adds}
	for _, id := range ids {
		c.Markers = append(c.Markers, store.Marker{ID: id, Fingerprint: 1 << 60, Fold: uint64(n), At: now})
	}
	if ruled {
		c.Buckets = make([]store.BucketDelta, len(adds))
		for i := range adds {
			c.Buckets[i] = store.BucketDelta{Add: i, Minute: wire.MinuteOf(now) + wire.Minute(n/100), Delta: adds[i].Delta}
		}
	}
	_, err := f.s.Fold(ctx, c)
	return err
}

func (f storeFolder) grow(ctx context.Context, counter string) error {
	_, err := f.s.GrowCounter(ctx, counter, 1)
	return err
}

func (f storeFolder) logged() uint64 { return f.db.Metrics().WAL.BytesWritten }

func folders(b *testing.B, run func(b *testing.B, f folder)) {
	b.Run("store", func(b *testing.B) {
		s, err := pebble.Open(pebble.Config{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		run(b, storeFolder{s, s.DB()})
	})
	b.Run("protocol", func(b *testing.B) {
		e := open(b, pebble.Config{Dir: b.TempDir()}, protocol.Kinds)
		s, err := protocol.Open(b.Context(), e, protocol.Config{})
		if err != nil {
			b.Fatal(err)
		}
		run(b, storeFolder{s, e.db})
	})
	b.Run("rows", func(b *testing.B) { run(b, rowFolder{open(b, pebble.Config{Dir: b.TempDir()}, counterKinds())}) })
}

// processTime is the time of processors that this process has used. Beside other programs it says more than the clock.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCommit measures folds with a marker for 24 adds, over a million names, of today's store and of rows.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{400, 10_000, 100_000} {
		for _, ruled := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/rule=%t", size, ruled), func(b *testing.B) {
				commits := benchAdds(min(16, 1_600_000/size), size)
				folders(b, func(b *testing.B, f folder) {
					b.ReportAllocs()
					ids := make([]wire.PartID, (size+23)/24)
					began := processTime(b)
					for i := 0; b.Loop(); i++ {
						drawIDs(ids)
						if err := f.fold(b.Context(), i, commits[i%len(commits)], ids, ruled); err != nil {
							b.Fatal(err)
						}
					}
					adds := float64(b.N) * float64(size)
					b.ReportMetric(adds/b.Elapsed().Seconds(), "adds/s")
					b.ReportMetric(float64(processTime(b)-began)/adds, "cpu-ns/add")
					b.ReportMetric(float64(f.logged())/adds, "log-B/add")
				})
			})
		}
	}
}

// BenchmarkCommitBeside measures folds of 400 adds beside 64 callers of transactions.
func BenchmarkCommitBeside(b *testing.B) {
	commits := benchAdds(16, 400)
	for _, callers := range []int{0, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			folders(b, func(b *testing.B, f folder) {
				ctx, cancel := context.WithCancel(b.Context())
				var group sync.WaitGroup
				var done atomic.Int64
				for c := range callers {
					group.Go(func() {
						for i := 0; ctx.Err() == nil; i++ {
							if err := f.grow(ctx, fmt.Sprint("counter ", c, i)); err != nil && ctx.Err() == nil {
								b.Error(err)
								return
							}
							done.Add(1)
						}
					})
				}
				ids := make([]wire.PartID, 17)
				for i := 0; b.Loop(); i++ {
					drawIDs(ids)
					if err := f.fold(b.Context(), i, commits[i%len(commits)], ids, false); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "folds/s")
				b.ReportMetric(float64(done.Load())/b.Elapsed().Seconds(), "transacts/s")
				cancel()
				group.Wait()
			})
		})
	}
}
