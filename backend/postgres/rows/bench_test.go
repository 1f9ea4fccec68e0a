package rows

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
)

// names of the benchmarks, uniform.
const names = 100_000

func places() []engine.Key {
	keys := make([]engine.Key, names)
	for i := range keys {
		keys[i] = engine.Key{Kind: shard, Place: uint64(i) << 40, Name: fmt.Sprintf("page:%d", i)}
	}
	return keys
}

// some returns n keys in their order, each once.
func some(keys []engine.Key, n int) []engine.Key {
	at := rand.Perm(len(keys))[:n]
	slices.Sort(at)
	chosen := make([]engine.Key, n)
	for i, a := range at {
		chosen[i] = keys[a]
	}
	return chosen
}

// fill makes all rows.
func fill(b *testing.B, e *Engine, keys []engine.Key) {
	for part := range slices.Chunk(keys, commitRows) {
		if err := fold(e, part, -1, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// fold commits an addition to each key, and a marker for each 24 of them.
func fold(e *Engine, keys []engine.Key, id int, field []engine.Field) error {
	marker := engine.Change{Op: engine.Insert, Data: []byte("x")}
	c := engine.Change{Add: append([]engine.Field{{ID: tally, Value: engine.IntOf(1)}, {ID: count, Value: engine.IntOf(3)}}, field...)}
	_, err := e.Commit(context.Background(), &engine.Commit{Changes: func(yield func(*engine.Change) bool) {
		for i := 0; i < len(keys) && id >= 0; i += 24 {
			marker.Key = engine.Key{Kind: once, Name: fmt.Sprintf("%010d%06d", id, i)}
			if !yield(&marker) {
				return
			}
		}
		for i := range keys {
			if c.Key = keys[i]; !yield(&c) {
				return
			}
		}
	}})
	return err
}

// Commits of uniform additions, one after the other.
func BenchmarkCommit(b *testing.B) {
	e, keys := open(b, schema(b), enginetest.Kinds()), places()
	fill(b, e, keys)
	for name, field := range map[string][]engine.Field{"": nil, ",series": {{ID: 16, Value: engine.IntOf(1)}}} {
		for _, n := range []int{100, 400, commitRows / 25 * 24} {
			b.Run(fmt.Sprintf("rows=%d%s", n, name), func(b *testing.B) {
				first := rand.Int() % 1_000_000_000
				for i := 0; b.Loop(); i++ {
					if err := fold(e, some(keys, n), first+i, field); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "adds/s")
			})
		}
	}
}

// UPDATE n = n + 1, a row each, over as many rows.
func BenchmarkUpdate(b *testing.B) {
	e := open(b, schema(b), enginetest.Kinds())
	ctx, table := context.Background(), quoted(e.schema, "plain")
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{
		"create table " + table + " (name text primary key, n bigint) with (fillfactor = 80)",
		fmt.Sprintf("insert into %s select 'page:' || i, 0 from generate_series(0, %d) i", table, names-1),
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := conn.Exec(ctx, "update "+table+" set n = n + 1 where name = $1", pgx.QueryExecModeCacheStatement, fmt.Sprintf("page:%d", rand.IntN(names))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "adds/s")
}

// Several processes add to one counter, each a commit after the other: to one shard, or each to its own.
func BenchmarkHot(b *testing.B) {
	e := open(b, schema(b), enginetest.Kinds())
	for _, processes := range []int{1, 2, 4, 8} {
		for _, shards := range []int{1, processes} {
			b.Run(fmt.Sprintf("processes=%d/shards=%d", processes, shards), func(b *testing.B) {
				var group errgroup.Group
				for p := range processes {
					key := engine.Key{Kind: shard, Place: uint64(p%shards) << 40, Name: "hot"}
					group.Go(func() (err error) {
						for i := p; i < b.N && err == nil; i += processes {
							err = fold(e, []engine.Key{key}, -1, nil)
						}
						return err
					})
				}
				if err := group.Wait(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
				b.ReportMetric(float64(processes)*b.Elapsed().Seconds()*1000/float64(b.N), "ms/commit")
			})
		}
	}
}
