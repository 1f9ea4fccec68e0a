package recount_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// Counters whose records are gone, and balances that nobody knows.

// A lost store has lost the record of a counter.
type lost struct {
	store.Store
	counter string
}

type lostView struct {
	store.JournalView
	counter string
}

func (l lost) JournalView() store.JournalView { return lostView{l.Store.JournalView(), l.counter} }

func (v lostView) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	records, err := v.JournalView.List(ctx, prefix, after, limit)
	return slices.DeleteFunc(records, func(r store.Record) bool { return r.Counter == v.counter }), err
}

func (l lost) ShardPage(ctx context.Context, prefix, from string, limit int) (store.ShardPage, error) {
	page, err := l.Store.ShardPage(ctx, prefix, from, limit)
	delete(page.Records, l.counter)
	return page, err
}

// An opening balance has the counters without a record too: when it is back, the sum is right.
func TestOpeningBalancesHaveCountersWithoutRecords(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		fold(t, r, total, 7)
		r.pass(time.Hour)
		got := r.RecountBy(r.Recounter(lost{r.Store, total}, recount.Config{}), recount.Query{Prefix: "billing:", Open: true})
		if len(got.Findings) != 1 || got.Findings[0].Kind != recount.MissingRecord || got.Opened != 1 {
			t.Errorf("without the record: %+v", got)
		}
		fold(t, r, total, 1)
		if got := r.Recount(recount.Query{Prefix: "billing:", Repair: true}); len(got.Findings) > 0 || got.Counters != 1 {
			t.Errorf("with the record: %+v, want nothing found", got)
		}
		sums{total: 8}.want(t, r)
	})
}

// A short store has records that name one shard of a counter.
type short struct{ lost }

type shortView struct{ lostView }

func (s short) JournalView() store.JournalView {
	return shortView{lostView{s.Store.JournalView(), s.counter}}
}

func (v shortView) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	records, err := v.JournalView.List(ctx, prefix, after, limit)
	for i := range records {
		if records[i].Counter == v.counter {
			records[i].Shards = 1
		}
	}
	return records, err
}

func (s short) ShardsOf(ctx context.Context, counter string) (store.ShardPage, error) {
	page, err := s.Store.ShardsOf(ctx, counter)
	if counter == s.counter {
		page.Records[counter] = 1
	}
	return page, err
}

// A total that lacks shards gets them, and is not corrected before.
func TestShardsWithoutRecords(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		for range 10 {
			fold(t, r, total, 7)
		}
		got := r.RecountBy(r.Recounter(short{lost{r.Store, total}}, recount.Config{}), recount.Query{Repair: true, Prefix: total})
		if len(got.Findings) != 1 || got.Findings[0].Fixed || !strings.Contains(got.Findings[0].Detail, "did not name") {
			t.Errorf("found %+v, want shards that were not named", got.Findings)
		}
		sums{total: 70}.want(t, r)
	})
}

// A sum that lost its sign differs by more than fits 64 bits.
func TestLargestDifferences(t *testing.T) {
	t.Parallel()
	for _, sum := range []int64{7, -7} {
		forKinds(t, func(t *testing.T, r *rig) {
			writeRecord(r, total, sum)
			if err := r.Grow(t.Context(), []store.Growth{{Counter: total, Shards: 1}}); err != nil {
				t.Fatal(err)
			}
			damage(t, r, total, sum^math.MinInt64)
			for range 3 {
				r.Recount(recount.Query{Prefix: total, Repair: true})
			}
			if got := r.Recount(recount.Query{Prefix: total}); got.Counters != 1 || len(got.Findings) > 0 {
				t.Errorf("a sum of %d, after repairs: %+v", sum, got)
			}
			sums{total: sum}.want(t, r)
		})
	}
}

// A sum of several shards that are together beyond 64 bits goes back by what fits.
func TestDifferencesThatWrap(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		if err := r.Grow(t.Context(), []store.Growth{{Counter: total, Shards: 2}}); err != nil {
			t.Fatal(err)
		}
		writeRecord(r, total, math.MaxInt64-5)
		damage(t, r, total, math.MaxInt64-5)
		c := &store.Commit{
			Correction: true, Rules: r.Settings().Version, Adds: []store.ShardDelta{store.NewShardDelta(total, 1, 50)},
			Markers: []store.Marker{{ID: r.NewID(), At: r.Now(), ExpireAt: r.Now().Add(time.Hour)}},
		}
		if _, err := r.Store.Fold(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if got := r.Recount(recount.Query{Prefix: total, Repair: true}); len(got.Findings) != 1 || !got.Findings[0].Fixed {
			t.Errorf("got %+v, want damage that was corrected", got)
		}
		sums{total: math.MaxInt64 - 5}.want(t, r)
	})
}

// writeRecord writes a record of a part for each delta, without its sums.
func writeRecord(r *rig, counter string, deltas ...int64) {
	at, done := r.JournalMoment(r.Now())
	defer done()
	var record journal.Record
	for _, delta := range deltas {
		record.Parts = append(record.Parts, journal.Part{ID: r.NewID(), Minute: wire.MinuteOf(at), Entries: []journal.Entry{{Counter: counter, Delta: delta}}})
	}
	key := store.NewJournalKey(at, r.Rand.Uint64())
	r.Store.WriteRecords(&store.Commit{Records: []store.JournalRecord{{Key: key, ExpireAt: at.Add(24 * time.Hour), Data: record.Encode(nil)}}})
}

// The balance of a counter that does not fit 64 bits is exact in an opening balance.
func TestBalancesBeyondInt64(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		growths := []store.Growth{{Counter: "old:1", Shards: 1}, {Counter: "old:2", Shards: 1}, {Counter: "old:3", Shards: 1}}
		if err := r.Grow(t.Context(), growths); err != nil {
			t.Fatal(err)
		}
		damage(t, r, "old:1", math.MinInt64)
		damage(t, r, "old:1", math.MinInt64)
		for range 3 {
			damage(t, r, "old:2", math.MaxInt64)
		}
		damage(t, r, "old:3", 50)
		r.Change(keepJournal(t, "old:*", "30d"))
		r.pass(2 * store.RulesSettle)
		if _, err := r.Recounter(r.Store, recount.Config{}).Tend(t.Context(), quiet); err != nil {
			t.Fatal(err)
		}
		for name, n := range map[string]int64{"old:1": 7, "old:2": -math.MaxInt64} { // increments
			damage(t, r, name, n)
			writeRecord(r, name, n)
		}
		fold(t, r, "old:3", 5)
		if got := r.Recount(recount.Query{Prefix: "old:", Repair: true}); len(got.Findings) > 0 || got.Counters != 3 || len(got.Reasons) > 0 {
			t.Errorf("got %+v, want 3 counters and nothing found", got)
		}
		damage(t, r, "old:2", 1)
		want := int128.Of(math.MaxInt64).Add(int128.Of(math.MaxInt64))
		if got := r.Recount(recount.Query{Prefix: "old:", Repair: true}); len(got.Findings) != 1 || got.Findings[0].Counted != want || !got.Findings[0].Fixed {
			t.Errorf("got %+v, want %d and one more corrected", got, want)
		}
	})
}

// A client reads answers up to a size: with many findings a range is smaller.
func TestBoundOfAnswers(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		const counters, most = 20, 6
		for i := range counters {
			name := fmt.Sprint("billing:", i)
			fold(t, r, name, 7)
			damage(t, r, name, 1)
		}
		x, found := r.Recounter(r.Store, recount.Config{MostFindings: most}), 0
		for q := (recount.Query{Prefix: "billing:"}); ; {
			got, err := x.Recount(t.Context(), q)
			if err != nil || len(got.Findings) > most {
				t.Fatalf("a range has %d findings, %v; want %d at most", len(got.Findings), err, most)
			}
			found += len(got.Findings)
			if q.Range = got.Next; q.Range == "" {
				break
			}
		}
		if found != counters {
			t.Errorf("found %d, want %d", found, counters)
		}
	})
}
