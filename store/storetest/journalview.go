package storetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// viewed reads the journal and a shard of a in a view.
func viewed(t testing.TB, v store.JournalView) (records []store.JournalRecord, settled time.Time, count int64) {
	t.Helper()
	q := store.JournalQuery{Limit: 7}
	for {
		page, err := v.JournalRecords(t.Context(), q)
		if err != nil {
			t.Fatalf("JournalRecords of a view: %v", err)
		}
		records, settled = append(records, page.Records...), page.SettledUntil
		if !page.More {
			break
		}
		q.From = records[len(records)-1].Place().Next()
	}
	return records, settled, small(t, lookup(t, v, store.Key{Counter: "a"})[0].Count)
}

// A view shows the journal as it was at its moment, with records that are not settled.
func testJournalView(t *testing.T, su *suite) {
	s := su.open(t)
	first := foldEvidence(t, s, "a")
	now := check(t, s).At
	if now.IsZero() {
		now = time.Now()
	}
	at, done := s.JournalMoment(now.Truncate(time.Microsecond))
	c := commit(one(marker()), add("a", 0, 1))
	young := store.JournalRecord{Key: store.NewJournalKey(at, rand.Uint64()), ExpireAt: at.Add(day), Data: []byte("young")}
	c.Records, c.Rules = []store.JournalRecord{young}, check(t, s).Settings.Version
	mustFold(t, s, c)
	v := s.JournalView()
	defer v.Close()
	want := []store.JournalRecord{first, young}
	for _, when := range []string{"at once", "after a fold"} {
		got, settled, count := viewed(t, v)
		wantRecords(t, when, got, want)
		if count != 2 || !settled.Before(at) || v.ReadTime().IsZero() {
			t.Errorf("%s: the view of %s has %d, settled until %s; want 2, and the record of %s not settled", when, v.ReadTime(), count, settled, at)
		}
		rows, err := v.JournalRows(t.Context(), "a", store.JournalQuery{Limit: 1, Last: true})
		if err != nil || len(rows.Rows) != 1 || rows.Rows[0].Place != first.Place() || rows.More {
			t.Errorf("%s: rows of the view: %+v, %v", when, rows, err)
		}
		if done(); when == "at once" {
			foldEvidence(t, s, "a")
		}
	}
}

// A correction changes the total alone, or buckets alone.
func testCorrections(t *testing.T, su *suite) {
	s := su.open(t)
	addRule(t, s, "a", keep)
	minute := wire.MinuteOf(time.Now().Add(-time.Hour))
	mustFold(t, s, seriesCommit(one(marker()), bucketed{"a", 0, minute, 10}))
	buckets := commit(one(marker()), add("a", 0, 0))
	buckets.Correction, buckets.Buckets = true, []store.BucketDelta{{Minute: minute, Delta: 5}, {Minute: minute + 1, Delta: -2}}
	total := commit(one(marker()), add("a", 0, -3))
	total.Correction = true
	for _, c := range []*store.Commit{buckets, total} {
		c.Rules = check(t, s).Settings.Version
		if _, err := foldRetrying(t.Context(), s, c); err != nil {
			t.Fatalf("a correction: %v", err)
		}
	}
	v := s.View()
	defer v.Close()
	if got := lookup(t, v, store.Key{Counter: "a"})[0]; got.Count != of(7) || got.Bucketed != of(10) {
		t.Errorf("after corrections: a count of %d, %d bucketed, want 7 and 10", got.Count, got.Bucketed)
	}
	got := make(map[int]int64)
	for _, b := range seriesIn(t, v, "a", 0, allTime) {
		got[int(b.Minute-minute)] = small(t, b.Sum)
	}
	if len(got) != 2 || got[0] != 15 || got[1] != -2 {
		t.Errorf("after corrections: buckets %v, want 15 and -2", got)
	}
}
