package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
)

// evidence adds a record to a commit, and a row for each counter. Its time is settled wherever the caller
// sets times. done ends the attempt.
func evidence(t testing.TB, s store.Store, c *store.Commit, counters ...string) (r store.JournalRecord, done func()) {
	t.Helper()
	checked := check(t, s)
	now := checked.At
	if c.Rules = checked.Settings.Version; now.IsZero() {
		now = time.Now()
	}
	at, done := s.JournalMoment(now.Add(-store.JournalSettle - time.Hour).Truncate(time.Microsecond))
	r = store.JournalRecord{Key: store.NewJournalKey(at, rand.Uint64()), ExpireAt: at.Add(day), Data: fmt.Appendf(nil, "record of %d adds at %s", len(c.Adds), at)}
	c.Records = append(c.Records, r)
	for i, counter := range counters {
		c.Rows = append(c.Rows, store.JournalRow{
			Counter: counter, Place: store.JournalPlace{Key: r.Key, Position: uint32(i)}, ExpireAt: r.ExpireAt, Data: []byte("row of " + counter),
		})
	}
	return r, done
}

// foldEvidence folds an add to each counter, with a record and rows.
func foldEvidence(t testing.TB, s store.Store, counters ...string) store.JournalRecord {
	t.Helper()
	var adds []store.ShardDelta
	for _, counter := range counters {
		adds = append(adds, add(counter, 0, 1))
	}
	c := commit(one(marker()), adds...)
	r, done := evidence(t, s, c, counters...)
	defer done()
	if _, err := foldRetrying(t.Context(), s, c); err != nil {
		t.Fatalf("Fold with a record: %v", err)
	}
	return r
}

func recordsIn(t testing.TB, s store.Store, q store.JournalQuery) store.JournalPage {
	t.Helper()
	v := s.JournalView()
	defer v.Close()
	q.Settled = true
	page, err := v.JournalRecords(t.Context(), q)
	if err != nil {
		t.Fatalf("JournalRecords of %+v: %v", q, err)
	}
	return page
}

func rowsIn(t testing.TB, s store.Store, counter string, q store.JournalQuery) store.JournalPage {
	t.Helper()
	v := s.JournalView()
	defer v.Close()
	q.Settled = true
	page, err := v.JournalRows(t.Context(), counter, q)
	if err != nil {
		t.Fatalf("JournalRows of %q, %+v: %v", counter, q, err)
	}
	return page
}

func wantRecords(t testing.TB, what string, got, want []store.JournalRecord) {
	t.Helper()
	if diff := gocmp.Diff(want, got, sameTimes, equateEmpty); diff != "" {
		t.Errorf("%s: records (-want +got):\n%s", what, diff)
	}
}

func testJournalIsOneWithItsCommit(t *testing.T, su *suite) {
	s := su.open(t)
	mark := marker()
	c := commit(one(mark), add("a", 0, 1))
	r, done := evidence(t, s, c, "a")
	mustFold(t, s, c)
	done()
	refused := commit([]store.Marker{marker(), mark}, add("a", 0, 10))
	_, done = evidence(t, s, refused, "a")
	if _, err := s.Fold(t.Context(), refused); !errors.Is(err, store.ErrMarkerExists) {
		t.Errorf("a fold with a marker that exists: %v", err)
	}
	done()
	page := recordsIn(t, s, store.JournalQuery{Limit: 10})
	wantRecords(t, "after a fold and a refused one", page.Records, []store.JournalRecord{r})
	rows := rowsIn(t, s, "a", store.JournalQuery{Limit: 10})
	if len(rows.Rows) != 1 || rows.Rows[0].Place != r.Place() || string(rows.Rows[0].Data) != "row of a" || !rows.Rows[0].ExpireAt.Equal(r.ExpireAt) {
		t.Errorf("rows after a fold and a refused one: %+v", rows.Rows)
	}
	if page.More || rows.More || page.SettledUntil.Before(r.Key.Time()) {
		t.Errorf("one record: got more %t and %t, settled until %s; the record is of %s", page.More, rows.More, page.SettledUntil, r.Key.Time())
	}
}

// Pages of any size, forward and backward, have every record once and in order.
func testJournalPages(t *testing.T, su *suite) {
	s := su.open(t)
	var want []store.JournalRecord
	for range 23 {
		want = append(want, foldEvidence(t, s, "a"))
	}
	slices.SortFunc(want, func(a, b store.JournalRecord) int { return a.Place().Compare(b.Place()) })
	for _, limit := range []int{1, 7, 22, 23, 100} {
		var forward, backward []store.JournalRecord
		q := store.JournalQuery{Limit: limit}
		for more := true; more; {
			page := recordsIn(t, s, q)
			if forward, more = append(forward, page.Records...), page.More; more != (len(forward) < len(want)) || len(page.Records) > limit || len(page.Records) == 0 {
				t.Fatalf("limit %d: a page of %d after %d of %d records, more %t", limit, len(page.Records), len(forward), len(want), more)
			}
			q.From = forward[len(forward)-1].Place().Next()
		}
		wantRecords(t, fmt.Sprintf("forward by %d", limit), forward, want)
		q = store.JournalQuery{Limit: limit, Last: true}
		for more := true; more && len(backward) <= len(want); {
			page := recordsIn(t, s, q)
			if len(page.Records) == 0 {
				t.Fatalf("limit %d: an empty page before %d of %d records", limit, len(backward), len(want))
			}
			backward, more = append(slices.Clone(page.Records), backward...), page.More
			q.To = backward[0].Place()
		}
		wantRecords(t, fmt.Sprintf("backward by %d", limit), backward, want)
	}
	middle := store.JournalQuery{From: want[5].Place(), To: want[9].Place(), Limit: 100}
	wantRecords(t, "a range", recordsIn(t, s, middle).Records, want[5:9])
	middle.From, middle.To = want[5].Place().Next(), want[9].Place().Next()
	wantRecords(t, "a range behind places", recordsIn(t, s, middle).Records, want[6:10])
	middle.From, middle.Last, middle.Limit = store.JournalPlace{}, true, 3
	wantRecords(t, "the last ones of a range", recordsIn(t, s, middle).Records, want[7:10])
}

// A counter has its own rows alone, whatever its name.
func testJournalRows(t *testing.T, su *suite) {
	s := su.open(t)
	records := make(map[string][]store.JournalPlace)
	for range 3 {
		for names := range slices.Chunk(oddNames, 10) {
			r := foldEvidence(t, s, names...)
			for i, name := range names {
				records[name] = append(records[name], store.JournalPlace{Key: r.Key, Position: uint32(i)})
			}
		}
	}
	for _, name := range oddNames {
		want := records[name]
		slices.SortFunc(want, store.JournalPlace.Compare)
		places := func(page store.JournalPage) (all []store.JournalPlace) {
			for i := range page.Rows {
				if r := &page.Rows[i]; r.Counter != name || string(r.Data) != "row of "+name {
					t.Errorf("%q has a row of %q: %s", name, r.Counter, r.Data)
				}
				all = append(all, page.Rows[i].Place)
			}
			return all
		}
		first := rowsIn(t, s, name, store.JournalQuery{Limit: 2})
		rest := rowsIn(t, s, name, store.JournalQuery{From: want[1].Next(), Limit: 2})
		last := rowsIn(t, s, name, store.JournalQuery{To: want[2], Limit: 1, Last: true})
		if diff := gocmp.Diff([][]store.JournalPlace{want[:2], want[2:], want[1:2]}, [][]store.JournalPlace{places(first), places(rest), places(last)}); diff != "" {
			t.Errorf("rows of %q (-want +got):\n%s", name, diff)
		}
		if !first.More || rest.More || !last.More {
			t.Errorf("rows of %q: more is %t, %t, %t, want true, false, true", name, first.More, rest.More, last.More)
		}
	}
}

// Whoever follows the head sees every record, also those of commits that take long.
func testJournalSettles(t *testing.T, su *suite) {
	s := su.open(t)
	past := time.Now().Add(-time.Hour)
	if at, done := s.JournalMoment(past); at.Sub(past).Abs() < time.Minute {
		done()
		t.Skip("the store settles after minutes")
	} else {
		done()
	}
	var writers sync.WaitGroup
	var mu sync.Mutex
	var want []store.JournalRecord
	for i := range 4 {
		writers.Go(func() {
			for range 3 * su.rounds {
				r := foldEvidence(t, s, fmt.Sprintf("a%d", i))
				mu.Lock()
				want = append(want, r)
				mu.Unlock()
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		writers.Wait()
		close(ended)
	}()
	var got []store.JournalRecord
	var settled time.Time
	q := store.JournalQuery{Limit: 1000}
	for last := false; !last; {
		select {
		case <-ended:
			last = true
		default:
		}
		page := recordsIn(t, s, q)
		if got = append(got, page.Records...); page.SettledUntil.Before(settled) {
			t.Fatalf("settled until %s, after %s", page.SettledUntil, settled)
		}
		if settled = page.SettledUntil; page.More {
			last = false
		}
		if len(got) > 0 {
			q.From = got[len(got)-1].Place().Next()
		}
	}
	slices.SortFunc(want, func(a, b store.JournalRecord) int { return a.Place().Compare(b.Place()) })
	wantRecords(t, "followed beside commits", got, want)
}

func testReplaceRecord(t *testing.T, su *suite) {
	s := su.open(t)
	first, second := foldEvidence(t, s, "a", "b"), foldEvidence(t, s, "a")
	next := first
	next.Data = []byte("less")
	rows := rowsIn(t, s, "a", store.JournalQuery{From: first.Place(), To: first.Place().Next(), Limit: 1}).Rows
	if err := s.ReplaceRecord(t.Context(), &first, &next, rows); err != nil {
		t.Fatalf("ReplaceRecord: %v", err)
	}
	if err := s.ReplaceRecord(t.Context(), &first, &next, nil); !errors.Is(err, store.ErrChanged) {
		t.Errorf("ReplaceRecord of data that are not there: got %v, want ErrChanged", err)
	}
	page := recordsIn(t, s, store.JournalQuery{Limit: 10})
	for _, r := range page.Records {
		want := second
		if r.Key == first.Key {
			want = next
		}
		if !bytes.Equal(r.Data, want.Data) || !r.ExpireAt.Equal(want.ExpireAt) {
			t.Errorf("after a replacement: got %q until %s, want %q until %s", r.Data, r.ExpireAt, want.Data, want.ExpireAt)
		}
	}
	if a, b := rowsIn(t, s, "a", store.JournalQuery{Limit: 10}), rowsIn(t, s, "b", store.JournalQuery{Limit: 10}); len(page.Records) != 2 || len(a.Rows) != 1 || len(b.Rows) != 1 {
		t.Errorf("after a replacement: %d records, %d and %d rows, want 2, 1, 1", len(page.Records), len(a.Rows), len(b.Rows))
	}
	absent := first
	absent.Key[15]++
	if err := s.ReplaceRecord(t.Context(), &absent, &next, nil); !errors.Is(err, store.ErrChanged) {
		t.Errorf("ReplaceRecord of no record: got %v, want ErrChanged", err)
	}
}

func testSweepJournal(t *testing.T, su *suite) {
	s := su.open(t)
	c := commit(one(marker()), add("a", 0, 1))
	old, done := evidence(t, s, c, "a", "b")
	c.Records[0].ExpireAt = old.Key.Time().Add(-3 * time.Hour)
	for i := range c.Rows {
		c.Rows[i].ExpireAt = c.Records[0].ExpireAt
	}
	mustFold(t, s, c)
	done()
	young := foldEvidence(t, s, "a")
	for range 2 {
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatalf("Sweep: %v", err)
		}
		if su.expire != nil {
			su.expire(t, s)
		}
		wantRecords(t, "after a sweep", recordsIn(t, s, store.JournalQuery{Limit: 10}).Records, []store.JournalRecord{young})
		a, b := rowsIn(t, s, "a", store.JournalQuery{Limit: 10}).Rows, rowsIn(t, s, "b", store.JournalQuery{Limit: 10}).Rows
		if len(a) != 1 || a[0].Place != young.Place() || len(b) != 0 {
			t.Errorf("rows after a sweep: %+v and %+v, want one of %s", a, b, young.Place())
		}
	}
}

var journalKeep = store.Retention{Entries: 400 * day, Paged: true}

func testReopenedJournal(t *testing.T, su *suite) {
	if su.reopen == nil {
		t.Skip("the store does not outlive its process")
	}
	s := su.open(t)
	addRule(t, s, "a*", keep)
	set := changeSettings(t, "add a rule for the journal", func() (store.Settings, error) {
		return s.ChangeRules(t.Context(), store.RuleChange{Kind: store.KindJournal, Pattern: "b*", Keep: journalKeep})
	})
	if rule := set.Rules.JournalOf("bc"); rule == nil || rule.Keep != journalKeep || set.Rules.SeriesOf("a") == nil || set.Rules.JournalOf("a") != nil {
		t.Fatalf("a rule for the journal was added: got %+v", set.Rules)
	}
	r := foldEvidence(t, s, "bc")
	s = su.reopen(t, s)
	wantRules(t, "opened again", s, set)
	wantRecords(t, "opened again", recordsIn(t, s, store.JournalQuery{Limit: 10}).Records, []store.JournalRecord{r})
}
