package recounttest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	records "github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
)

// fillJournal folds n increments of some counters, each a part of its own, in records of 2,000.
func fillJournal(b *testing.B, s store.Store, counters, n int, pass func(time.Duration), now func() time.Time) {
	b.Helper()
	change := store.Retention{Entries: 400 * 24 * time.Hour}
	if _, err := s.ChangeRules(b.Context(), store.RuleChange{Kind: store.KindJournal, Pattern: "billing:*", Keep: change}); err != nil {
		b.Fatal(err)
	}
	pass(2 * store.RulesSettle)
	if _, err := recount.New(s, recount.Config{}).Recount(b.Context(), recount.Query{Prefix: "billing:", Open: true}); err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for left := n; left > 0; left -= 2000 {
		r, sums := records.Record{}, make(map[string]int64)
		for range min(left, 2000) {
			name := fmt.Sprintf("billing:shop-%d", random.IntN(counters))
			sums[name]++
			p := records.Part{Minute: 29_000_000, Sender: "shop", Entries: []records.Entry{{Counter: name, Delta: 1}}}
			for i := range p.ID {
				p.ID[i] = byte(random.Uint32())
			}
			r.Parts = append(r.Parts, p)
		}
		c := &store.Commit{Rules: store.AnyRules}
		for name, delta := range sums {
			c.Adds = append(c.Adds, store.NewShardDelta(name, 0, delta))
			c.Growths = append(c.Growths, store.Growth{Counter: name, Shards: 1})
		}
		slices.SortFunc(c.Adds, func(x, y store.ShardDelta) int {
			return cmp.Or(cmp.Compare(x.Order, y.Order), strings.Compare(x.Counter, y.Counter))
		})
		slices.SortFunc(c.Growths, func(x, y store.Growth) int { return strings.Compare(x.Counter, y.Counter) })
		at, done := s.JournalMoment(now())
		c.Records = []store.JournalRecord{{Key: store.NewJournalKey(at, random.Uint64()), ExpireAt: at.Add(change.Entries), Data: r.Encode(nil)}}
		foldGrown(b, s, c)
		done()
	}
}

// foldGrown folds a commit, and gives its counters shards first where a fold does not.
func foldGrown(b *testing.B, s store.Store, c *store.Commit) {
	b.Helper()
	if !s.Limits().GrowsInFold {
		if err := s.Grow(b.Context(), c.Growths); err != nil {
			b.Fatal(err)
		}
		c.Growths = nil
	}
	if _, err := s.Fold(b.Context(), c); err != nil {
		b.Fatal(err)
	}
}

// Bench recounts COUNTMILL_BENCH_ENTRIES increments, 100,000 without it, of some counters, in 1, 2 and 4 ranges at the same
// time. It finds one damaged counter. pass moves the store's clock, and now is its time.
func Bench(b *testing.B, s store.Store, counters int, pass func(time.Duration), now func() time.Time) {
	n := 100_000
	if text := os.Getenv("COUNTMILL_BENCH_ENTRIES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	fillJournal(b, s, counters, n, pass, now)
	_, err := s.Fold(b.Context(), &store.Commit{Rules: store.AnyRules, Correction: true, Adds: []store.ShardDelta{store.NewShardDelta("billing:shop-7", 0, 5)}})
	if err != nil {
		b.Fatal(err)
	}
	for _, ranges := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("ranges=", ranges), func(b *testing.B) {
			before := peak(b)
			for b.Loop() {
				recountRanges(b, s, ranges)
			}
			b.ReportMetric(before, "MiB-filled")
			b.ReportMetric(peak(b), "MiB-peak")
		})
	}
}

// recountRanges recounts as the command does with --parallel, and finds one damaged counter.
func recountRanges(b *testing.B, s store.Store, ranges int) {
	b.Helper()
	r, found := recount.New(s, recount.Config{}), make([]int, ranges)
	g, ctx := errgroup.WithContext(b.Context())
	size := uint64(math.MaxUint64)/uint64(ranges) + 1 // 0 for one range: all places
	for i := range ranges {
		q := recount.Query{Prefix: "billing:"}
		if from := uint64(i) * size; ranges > 1 {
			q.Piece = fmt.Sprintf("%016x-%016x", from, from+size-1)
		}
		g.Go(func() error {
			got, err := r.Recount(ctx, q)
			if found[i] = len(got.Findings); err == nil && got.Next != "" {
				err = fmt.Errorf("range %d was not recounted at once", i)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	sum := 0
	for _, n := range found {
		sum += n
	}
	if sum != 1 {
		b.Fatalf("found %d damaged sums, want 1", sum)
	}
}

// peak is the largest resident memory of the process so far.
func peak(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	var kib float64
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, err = fmt.Sscan(rest, &kib)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
