package app

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// boardLoad is a directory with a million indexed counters, and commits to them.
type boardLoad struct {
	*pebble.Store
	all   []store.ShardDelta
	index int64
	rules int64
}

func newBoardLoad(b *testing.B, counters int) *boardLoad {
	s, err := pebble.Open(pebble.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	set, err := s.ChangeRules(b.Context(), store.RuleChange{Index: &store.IndexChange{Step: store.CreateIndex, Index: store.Index{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"}}})
	if err != nil {
		b.Fatal(err)
	}
	l := &boardLoad{Store: s, index: set.Rules.Indexes[0].Number, rules: set.Version}
	random := rand.New(rand.NewPCG(1, 1))
	for i := range counters {
		// Totals as of a Zipf law.
		l.all = append(l.all, store.NewShardDelta(fmt.Sprintf("page:s%d:/articles/%07d", i%1000, i), 0, 1+int64(1e9/(1+float64(random.IntN(counters))))))
	}
	slices.SortFunc(l.all, func(x, y store.ShardDelta) int { return cmp.Compare(x.Order, y.Order) })
	for lot := range slices.Chunk(l.all, 100_000) {
		c := l.commit(lot)
		for i := range lot {
			c.Growths = append(c.Growths, store.Growth{Counter: lot[i].Counter, Shards: 1})
		}
		slices.SortFunc(c.Growths, func(x, y store.Growth) int { return strings.Compare(x.Counter, y.Counter) })
		if _, err := s.Fold(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	return l
}

func (l *boardLoad) commit(adds []store.ShardDelta) *store.Commit {
	c := &store.Commit{Adds: adds, Rules: l.rules, Grouped: make([]store.Grouping, len(adds))}
	indexes := []int64{l.index}
	for i := range adds {
		c.Grouped[i] = store.Grouping{Add: i, Indexes: indexes}
	}
	return c
}

// run folds commits of 10,000 counters for a while, and returns the adds a second. ask is called every
// 100 ms beside it.
func (l *boardLoad) run(b *testing.B, commits []*store.Commit, long time.Duration, ask func()) float64 {
	var asking sync.WaitGroup
	done := make(chan struct{})
	asking.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				ask()
			}
		}
	})
	began, adds := time.Now(), 0
	for i := 0; time.Since(began) < long; i++ {
		if _, err := l.Fold(b.Context(), commits[i%len(commits)]); err != nil {
			b.Fatal(err)
		}
		adds += len(commits[i%len(commits)].Adds)
	}
	close(done)
	asking.Wait()
	return float64(adds) / time.Since(began).Seconds()
}

// BenchmarkBoards measures a million counters: how long the top 100 takes from a board at most 10 s old, and
// how much of the speed of folds is left beside the scans. Rounds with and without boards alternate.
//
//	go test ./internal/app -run '^$' -bench Boards -benchtime 1x -timeout 1h
func BenchmarkBoards(b *testing.B) {
	const rounds, long = 5, 12 * time.Second
	l := newBoardLoad(b, 1_000_000)
	random := rand.New(rand.NewPCG(2, 2))
	commits := make([]*store.Commit, 16)
	for i := range commits {
		adds := make([]store.ShardDelta, 0, 10_000)
		for at := random.IntN(100); at < len(l.all) && len(adds) < 10_000; at += 1 + random.IntN(199) {
			a := l.all[at]
			a.Delta = 1 + int64(at%9)
			adds = append(adds, a)
		}
		commits[i] = l.commit(adds)
	}
	rd, err := reader.New(l, nil, reader.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(rd.Close)
	q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites"}, N: 100}
	for b.Loop() {
		var took []time.Duration
		var ratios, scans []float64
		oldest, complete := time.Duration(0), 0
		ask := func() {
			began := time.Now()
			top, err := rd.Top(b.Context(), q)
			if err != nil || len(top.Top) != 100 {
				b.Errorf("%d counters, %v", len(top.Top), err)
				return
			}
			took = append(took, time.Since(began))
			oldest = max(oldest, top.AsOf.Sub(top.CompleteAsOf))
			if top.Complete {
				complete++
			}
		}
		began := time.Now()
		ask() // waits for the first board
		scans = append(scans, time.Since(began).Seconds())
		took = took[:0]
		for range rounds {
			alone := l.run(b, commits, long, func() {})
			ask() // begins the scan that the pause has put off
			beside := l.run(b, commits, long, ask)
			ratios = append(ratios, beside/alone)
			b.Logf("%.0f adds/s alone, %.0f beside boards", alone, beside)
		}
		slices.Sort(ratios)
		slices.Sort(took)
		b.ReportMetric(ratios[rounds/2], "of-speed")
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "top-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "top-p99-ms")
		b.ReportMetric(scans[0]*1000, "first-scan-ms")
		b.ReportMetric(oldest.Seconds(), "oldest-s")
		b.ReportMetric(float64(complete)/float64(len(took)), "complete")
		b.ReportMetric(float64(rd.Stats().Scans), "scans")
	}
}
