package protocol_test

import (
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// between calls f once, without a lock, when the next call of op begins. The op Transact begins when its function has run.
func (s tested) between(op memory.Op, f func()) {
	var done atomic.Bool
	s.db.OnCall(func(c *memory.Call) memory.Answer {
		if c.Op == op && !done.Swap(true) {
			f()
		}
		return memory.Answer{}
	})
}

// foldMinutes adds 1 to each minute, in days if they are old.
func foldMinutes(t *testing.T, s store.Store, counter string, minutes ...wire.Minute) {
	t.Helper()
	c := &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta(counter, 0, int64(len(minutes)))}, Rules: store.AnyRules, Archive: s.Limits().Ring.Archive(time.Now())}
	for _, m := range minutes {
		c.Buckets = append(c.Buckets, store.BucketDelta{Minute: m, Delta: 1})
	}
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// wantWhole checks that the series of a counter with one shard has all of its count.
func wantWhole(t *testing.T, s store.Store, counter string, want int64) (buckets []store.Bucket) {
	t.Helper()
	v := s.View()
	defer v.Close()
	found, err := v.Series(t.Context(), []store.Record{{Counter: counter, Shards: 1}}, 0, wire.MinuteOf(wire.MaxTime))
	if err != nil {
		t.Fatal(err)
	}
	sum := int128.Int{}
	for _, b := range found[0] {
		sum = sum.Add(b.Sum)
	}
	if got := look(t, s, counter); sum != int128.Of(want) || got.Sum != sum {
		t.Errorf("%q has a series of %d and a count of %d, want %d", counter, sum, got.Sum, want)
	}
	return found[0]
}

// Folds, growths and deletions between the reads of a transaction and its end are neither lost nor doubled.
func TestBetween(t *testing.T) {
	t.Parallel()
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, l)
			if _, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "*", Keep: store.Retention{Quarters: 400 * 24 * time.Hour}}); err != nil {
				t.Fatal(err)
			}
			t.Run("sweep and fold", func(t *testing.T) { testSweepAndFold(t, s) })
			t.Run("sweep and deletion", func(t *testing.T) { testSweepAndDeletion(t, s) })
			t.Run("move", func(t *testing.T) { testMove(t, s) })
			t.Run("join", func(t *testing.T) { testJoin(t, s) })
		})
	}
}

// deleted makes a counter that is deleted, and that the next sweep looks at.
func deleted(t *testing.T, s tested, counter string) {
	t.Helper()
	if err := s.Grow(t.Context(), []store.Growth{{Counter: counter, Shards: 2}}); err != nil {
		t.Fatal(err)
	}
	foldMinutes(t, s, counter, 100)
	remove(t, s, counter)
	for range 3 {
		if s.Limits().CertainOutcome {
			sweepOnce(t, s, 0, 0)
		}
	}
}

func sweepOnce(t *testing.T, s tested, after time.Duration, want int) {
	t.Helper()
	time.Sleep(time.Millisecond)
	if n, err := s.SweepCounters(t.Context(), after); err != nil || n != want {
		t.Errorf("a sweep removed %d counters, %v; want %d", n, err, want)
	}
}

func testSweepAndFold(t *testing.T, s tested) {
	deleted(t, s, "gone")
	s.between(memory.Transact, func() { foldMinutes(t, s, "gone", 100, 101) })
	sweepOnce(t, s, 0, 0)
	wantWhole(t, s, "gone", 3)
	if got := look(t, s, "gone"); got.Sum.Sub(got.Baseline) != int128.Of(2) || !got.DeletedAt.IsZero() {
		t.Errorf("a counter that was counted during its sweep: %+v", got)
	}
}

// An index that is made during a sweep keeps its counters.
func TestSweepAndIndex(t *testing.T) {
	t.Parallel()
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, l)
			deleted(t, s, "page:a:1")
			s.between(memory.Due, func() { createIndex(t, s) })
			sweepOnce(t, s, 0, 0)
			wantWhole(t, s, "page:a:1", 1)
		})
	}
}

func testSweepAndDeletion(t *testing.T, s tested) {
	deleted(t, s, "again")
	s.off.Store(int64(2 * time.Hour))
	s.between(memory.TxGet, func() {
		if err := s.Grow(t.Context(), []store.Growth{{Counter: "again", Shards: 1}}); err != nil {
			t.Error(err)
		}
		foldMinutes(t, s, "again", 100)
		remove(t, s, "again")
	})
	sweepOnce(t, s, time.Hour, 0)
	wantWhole(t, s, "again", 2)
}

func testMove(t *testing.T, s tested) {
	if s.Limits().Ring.Buckets == 0 {
		t.Skip("no ring")
	}
	var minutes []wire.Minute
	first := wire.MinuteOf(time.Now().Add(-s.Limits().Ring.Window)) + 60
	for i := range s.Limits().Ring.Buckets + 6 {
		minutes = append(minutes, first+wire.Minute(i))
	}
	foldMinutes(t, s, "moved", minutes...)
	s.between(memory.Transact, func() { foldMinutes(t, s, "moved", minutes...) })
	if n, err := s.MoveSeries(t.Context()); n != 1 || err != nil {
		t.Errorf("moved %d shards, %v", n, err)
	}
	wantWhole(t, s, "moved", int64(2*len(minutes)))
}

// A day has more minutes than one change may have.
func testJoin(t *testing.T, s tested) {
	day := wire.MinuteOf(time.Now())/store.DayMinutes*store.DayMinutes - 5*store.DayMinutes
	for i := range wire.Minute(300) {
		foldMinutes(t, s, "joined", day+i)
	}
	s.between(memory.Transact, func() { foldMinutes(t, s, "joined", day, day+400) })
	if err := s.SweepSeries(t.Context()); err != nil {
		t.Fatal(err)
	}
	buckets := wantWhole(t, s, "joined", 302)
	if len(buckets) < 20 || len(buckets) > 23 {
		t.Errorf("300 minutes became %d buckets, want 20 quarter hours and at most 3 more", len(buckets))
	}
	began := false
	s.between(memory.TxGet, func() { began = true })
	if err := s.SweepSeries(t.Context()); err != nil || began {
		t.Errorf("a sweep looked again at days that were swept (%v)", err)
	}
}

// A transaction begins again if another one changes what it has read.
func TestTransactionsReadWhatTheyChange(t *testing.T) {
	t.Parallel()
	s := open(t, limits["postgresql"])
	s.between(memory.Transact, func() {
		if _, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "a*", Keep: store.Retention{Quarters: store.MinKeep}}); err != nil {
			t.Error(err)
		}
	})
	set, err := s.ChangeRules(t.Context(), store.RuleChange{Index: &store.IndexChange{Step: store.CreateIndex, Index: store.Index{Name: "sites", Match: "page:{site}:*", Group: "sites:{site}"}}})
	if err != nil || set.Version != 3 || set.Rules.SeriesOf("a") == nil {
		t.Fatalf("two changes of rules: got %+v, %v", set, err)
	}
	p := store.IndexRange{Index: set.Rules.Index("sites").Number, ID: 1, To: math.MaxUint64}
	taken := func(worker string) error {
		q := p
		q.Worker = worker
		return s.SwapRanges(t.Context(), []store.IndexRange{p}, []store.IndexRange{q})
	}
	if err := s.SwapRanges(t.Context(), nil, []store.IndexRange{p}); err != nil {
		t.Fatal(err)
	}
	s.between(memory.Transact, func() {
		if err := taken("first"); err != nil {
			t.Error(err)
		}
	})
	if err := taken("second"); !errors.Is(err, store.ErrChanged) {
		t.Errorf("the second worker that takes a range: got %v", err)
	}
	var first int64
	s.between(memory.Transact, func() { first = take(t, s, "values") })
	if second := take(t, s, "values"); first != 1 || second != 2 {
		t.Errorf("two takes of values: got %d and %d", first, second)
	}
}
