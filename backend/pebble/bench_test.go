package pebble

import (
	"cmp"
	"context"

	"github.com/countmill/countmill/store"

	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/wire"
)

// benchCommits returns n sorted commits of size counters each, drawn from a million.
func benchCommits(n, size int) []*store.Commit {
	random := rand.New(rand.NewPCG(1, 1))
	all := make([]store.ShardDelta, 1_000_000)
	for i := range all {
		name := fmt.Sprintf("page:/articles/%07d", i)
		all[i] = store.NewShardDelta(name, 0, int64(1+i%9))
	}
	commits := make([]*store.Commit, n)
	for i := range commits {
		chosen := make(map[int]bool, size)
		c := &store.Commit{Adds: make([]store.ShardDelta, 0, size)}
		for len(c.Adds) < size {
			if at := random.IntN(len(all)); !chosen[at] {
				chosen[at] = true
				c.Adds = append(c.Adds, all[at])
			}
		}
		slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int { return cmp.Compare(a.Order, b.Order) })
		commits[i] = c
	}
	return commits
}

// processTime is the time of processors that this process has used. Beside other programs it says more than the clock.
func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFold measures sorted, synced commits over a million names. Compare adds/s with the figure of
// the design. With records, each add also writes its counter's record.
func BenchmarkFold(b *testing.B) {
	for _, size := range []int{400, 10_000, 100_000} {
		for _, records := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/records=%t", size, records), func(b *testing.B) {
				commits := benchCommits(min(16, 1_600_000/size), size)
				s := open(b, Config{Dir: b.TempDir()})
				began := processTime(b)
				for i := 0; b.Loop(); i++ {
					c := commits[i%len(commits)]
					if records {
						c.Growths = growthsOf(c.Adds) // measured too, because the aggregator makes and sorts them
					}
					if _, err := s.Fold(b.Context(), c); err != nil {
						b.Fatal(err)
					}
				}
				adds := float64(b.N) * float64(size)
				m := s.db.Metrics()
				total := m.Total()
				b.ReportMetric(adds/b.Elapsed().Seconds(), "adds/s")
				b.ReportMetric(float64(processTime(b)-began)/adds, "cpu-ns/add")
				b.ReportMetric(float64(m.WAL.BytesWritten)/adds, "log-B/add")
				b.ReportMetric(float64(total.TableBytesFlushed+total.TableBytesCompacted)/adds, "table-B/add")
			})
		}
	}
}

// BenchmarkFoldSeries measures BenchmarkFold's commits, of counters without a rule and under one. A
// minute passes every hundred folds.
func BenchmarkFoldSeries(b *testing.B) {
	for _, size := range []int{400, 10_000, 100_000} {
		for _, ruled := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/rule=%t", size, ruled), func(b *testing.B) {
				commits := benchCommits(min(16, 1_600_000/size), size)
				s := open(b, Config{Dir: b.TempDir()})
				first := wire.MinuteOf(time.Now())
				began := processTime(b)
				for i := 0; b.Loop(); i++ {
					c := commits[i%len(commits)]
					if ruled {
						c.Buckets = bucketsAt(c.Buckets[:0], c.Adds, first+wire.Minute(i/100)) // measured too
					}
					if _, err := s.Fold(b.Context(), c); err != nil {
						b.Fatal(err)
					}
				}
				adds := float64(b.N) * float64(size)
				total := s.db.Metrics().Total()
				b.ReportMetric(adds/b.Elapsed().Seconds(), "adds/s")
				b.ReportMetric(float64(processTime(b)-began)/adds, "cpu-ns/add")
				b.ReportMetric(float64(s.db.Metrics().WAL.BytesWritten)/adds, "log-B/add")
				b.ReportMetric(float64(total.TableBytesFlushed+total.TableBytesCompacted)/adds, "table-B/add")
			})
		}
	}
}

func bucketsAt(buckets []store.BucketDelta, adds []store.ShardDelta, minute wire.Minute) []store.BucketDelta {
	for i := range adds {
		buckets = append(buckets, store.BucketDelta{Add: i, Minute: minute, Delta: adds[i].Delta})
	}
	return buckets
}

func growthsOf(adds []store.ShardDelta) []store.Growth {
	growths := make([]store.Growth, len(adds))
	for i := range adds {
		growths[i] = store.Growth{Counter: adds[i].Counter, Shards: 1}
	}
	slices.SortFunc(growths, func(a, b store.Growth) int { return strings.Compare(a.Counter, b.Counter) })
	return growths
}

// BenchmarkFoldMarked measures commits of 2,400 adds from 100 parts with a marker each.
func BenchmarkFoldMarked(b *testing.B) {
	commits := benchCommits(16, 2400)
	s := open(b, Config{Dir: b.TempDir()})
	const markers = 100
	at := time.Now()
	began := processTime(b)
	for i := 0; b.Loop(); i++ {
		c := &store.Commit{Adds: commits[i%len(commits)].Adds}
		for range markers {
			c.Markers = append(c.Markers, store.Marker{ID: wire.RandomID(crand.Reader, wire.AnonymousClass), Fold: uint64(i), At: at})
		}
		if _, err := s.Fold(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*markers/b.Elapsed().Seconds(), "markers/s")
	b.ReportMetric(float64(processTime(b)-began)/float64(b.N)/2400, "cpu-ns/add")
}

// BenchmarkOpen opens the directory of a process that was killed after 800,000 adds. About the last half of them are only in the log.
func BenchmarkOpen(b *testing.B) {
	commits := benchCommits(80, 10_000)
	killed := b.TempDir()
	s := open(b, Config{Dir: killed})
	for _, c := range commits {
		if _, err := s.Fold(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	var used time.Duration
	for b.Loop() {
		b.StopTimer()
		cfg := Config{Dir: b.TempDir()}
		if err := os.CopyFS(cfg.Dir, os.DirFS(killed)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		began := processTime(b)
		opened, err := Open(cfg)
		used += processTime(b) - began
		b.StopTimer()
		if err != nil {
			b.Fatal(err)
		}
		if err := opened.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(used.Milliseconds())/float64(b.N), "cpu-ms/op")
}

// BenchmarkFoldBeside measures folds of 400 adds beside 64 callers of NextValues.
func BenchmarkFoldBeside(b *testing.B) {
	commits := benchCommits(16, 400)
	s := open(b, Config{Dir: b.TempDir()})
	ctx, cancel := context.WithCancel(b.Context())
	var callers sync.WaitGroup
	for n := range 64 {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := wire.SequenceID("bench", fmt.Sprint(n, " ", i))
				takes := []store.Take{{ID: id, Count: 1, At: time.Now(), ExpireAt: time.Now().Add(time.Hour)}}
				if _, err := s.NextValues(ctx, fmt.Sprint("sequence ", n), takes); err != nil && ctx.Err() == nil {
					b.Error(err)
					return
				}
			}
		})
	}
	for i := 0; b.Loop(); i++ {
		c := &store.Commit{Adds: commits[i%len(commits)].Adds, Markers: marker(time.Now())}
		if _, err := s.Fold(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "folds/s")
	cancel()
	callers.Wait()
}
