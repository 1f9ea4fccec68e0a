//go:build unix

package app

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
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

// A spent is the processor time of this process, which other processes of the machine do not change much.
func spent(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// A speed is adds by time on the wall and by processor time.
type speed struct{ wall, cpu float64 }

// run folds n commits of 10,000 counters. ask is called after every 50 of them.
func (l *boardLoad) run(b *testing.B, commits []*store.Commit, n int, ask func()) speed {
	began, used, adds := time.Now(), spent(b), 0
	for i := range n {
		if _, err := l.Fold(b.Context(), commits[i%len(commits)]); err != nil {
			b.Fatal(err)
		}
		if adds += len(commits[i%len(commits)].Adds); i%50 == 49 {
			ask()
		}
	}
	return speed{float64(adds) / time.Since(began).Seconds(), float64(adds) / (spent(b) - used).Seconds()}
}

func median(of []float64) float64 { return slices.Sorted(slices.Values(of))[len(of)/2] }

// BenchmarkBoards measures a million counters: a scan, the top 100 and a place from its board, and how much of the speed of
// folds is left beside a scan for each 3 million adds and a question for each 500,000. On two processors those are
// more scans than one in ten seconds. Rounds with and without boards alternate.
//
//	go test ./internal/app -run '^$' -bench Boards -benchtime 1x -timeout 1h
func BenchmarkBoards(b *testing.B) {
	const rounds, each = 5, 300
	l := newBoardLoad(b, 1_000_000)
	commits := l.commits()
	q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites"}, N: 100}
	ask := func(rd *reader.Reader) {
		if top, err := rd.Top(b.Context(), q); err != nil || len(top.Top) != 100 {
			b.Errorf("%d counters, %v", len(top.Top), err)
		}
	}
	open := func() *reader.Reader {
		rd, err := reader.New(l, nil, reader.Config{BoardAge: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		return rd
	}
	l.run(b, commits, 100, func() {}) // operands that are not merged yet
	for b.Loop() {
		rd := open()
		began, used := time.Now(), spent(b)
		ask(rd)
		b.ReportMetric(float64((spent(b) - used).Milliseconds()), "scan-cpu-ms")
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "scan-ms")
		measure(b, "top", 50, func() { ask(rd) })
		rank := func() {
			if _, err := rd.Rank(b.Context(), q.BoardQuery, l.all[0].Counter); err != nil {
				b.Error(err)
			}
		}
		measure(b, "first-rank", 1, rank)
		measure(b, "rank", 50, rank)
		var wall, cpu []float64
		for range rounds {
			alone := l.run(b, commits, each, func() {})
			next := open() // its first board is made beside the folds
			var first sync.WaitGroup
			first.Go(func() { ask(next) })
			beside := l.run(b, commits, each, func() { ask(rd) })
			first.Wait()
			rd.Close()
			rd = next
			wall, cpu = append(wall, beside.wall/alone.wall), append(cpu, beside.cpu/alone.cpu)
			b.Logf("adds/s alone %.0f, beside boards %.0f; adds a processor second alone %.0f, beside boards %.0f", alone.wall, beside.wall, alone.cpu, beside.cpu)
		}
		b.ReportMetric(median(wall), "of-speed")
		b.ReportMetric(median(cpu), "of-speed-cpu")
		rd.Close()
	}
}

// measure asks n times one after the other.
func measure(b *testing.B, what string, n int, ask func()) {
	var took []float64
	used := spent(b)
	for range n {
		began := time.Now()
		ask()
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	b.ReportMetric(float64((spent(b)-used).Microseconds())/float64(n)/1000, what+"-cpu-ms")
	b.ReportMetric(median(took), what+"-ms")
}

// commits are 16 commits of some 10,000 counters.
func (l *boardLoad) commits() []*store.Commit {
	random := rand.New(rand.NewPCG(2, 2))
	commits := make([]*store.Commit, 16)
	for i := range commits {
		var adds []store.ShardDelta
		for at := random.IntN(100); at < len(l.all); at += 1 + random.IntN(199) {
			a := l.all[at]
			a.Delta = 1 + int64(at%9)
			adds = append(adds, a)
		}
		commits[i] = l.commit(adds)
	}
	return commits
}
