package reader_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// A seriesStore is a store whose clock a test sets, with a rule for all counters that begin with a.
type seriesStore struct {
	*protocoltest.Store
	reader *reader.Reader

	mu  sync.Mutex
	now time.Time
}

// born is when the rule was made: long before the times of the tests.
var born = time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC)

func newSeries(t *testing.T, keep store.Retention) *seriesStore {
	t.Helper()
	s := &seriesStore{now: born}
	s.Store = protocoltest.New(protocoltest.Options{Clock: s.clock, Errorf: t.Errorf})
	s.rule(t, store.RuleChange{Pattern: "a*", Keep: keep})
	var err error
	if s.reader, err = reader.New(s.Store, nil, reader.Config{CheckEvery: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *seriesStore) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *seriesStore) set(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

func (s *seriesStore) rule(t *testing.T, c store.RuleChange) {
	t.Helper()
	if _, err := s.ChangeRules(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// count folds a delta at a time, in a series or only in the total.
func (s *seriesStore) count(t *testing.T, counter string, at time.Time, delta int64, bucketed bool) {
	t.Helper()
	if err := s.Grow(t.Context(), []store.Growth{{Counter: counter, Shards: 1}}); err != nil {
		t.Fatal(err)
	}
	s.fold(t, counter, at, delta, bucketed)
}

// fold is count for a counter whose record the aggregator remembers.
func (s *seriesStore) fold(t *testing.T, counter string, at time.Time, delta int64, bucketed bool) {
	t.Helper()
	// In the archive, where sweeps find it.
	c := &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta(counter, 0, delta)}, Archive: wire.MinuteOf(at) + 1}
	if bucketed {
		c.Buckets = []store.BucketDelta{{Minute: wire.MinuteOf(at), Delta: delta}}
	}
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func (s *seriesStore) read(t *testing.T, q reader.SeriesQuery) reader.Series {
	t.Helper()
	found, err := s.reader.Series(t.Context(), q)
	if err != nil {
		t.Fatalf("Series: %v", err)
	}
	return found
}

func (s *seriesStore) rows(t *testing.T, q reader.SeriesQuery) []reader.Row {
	t.Helper()
	return s.read(t, q).Rows
}

var (
	keepLong = store.Retention{Minutes: 6 * time.Hour, Quarters: 400 * day}
	noon     = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
)

// A brief row is a row as a test writes it down.
type brief struct {
	At      string
	Value   int64
	Partial bool
}

func briefs(rows []reader.Row) (all []brief) {
	for _, r := range rows {
		all = append(all, brief{r.Time.UTC().Format("02 15:04"), r.Value, r.Partial})
	}
	return all
}

func wantRows(t *testing.T, what string, rows []reader.Row, want ...brief) {
	t.Helper()
	if diff := cmp.Diff(want, briefs(rows)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Minutes and quarter hours sum to rows, rows without increments are 0, and the row that is not over
// is partial.
func TestSeriesSumsRows(t *testing.T) {
	t.Parallel()
	s := newSeries(t, keepLong)
	s.set(noon.Add(7 * time.Minute))
	for i, at := range []time.Duration{-31, -30, -16, -15, -1, 0, 6} {
		s.count(t, "a", noon.Add(at*time.Minute), int64(1)<<(2*i), true)
	}
	q := reader.SeriesQuery{Counters: []string{"a"}, Step: step(t, "15m"), From: noon.Add(-50 * time.Minute), To: noon.Add(5 * time.Minute)}
	want := []brief{{"23 11:00", 0, false}, {"23 11:15", 1, false}, {"23 11:30", 4 + 16, false}, {"23 11:45", 64 + 256, false}, {"23 12:00", 1024 + 4096, true}}
	wantRows(t, "quarter hours", s.rows(t, q), want...)
	if err := s.SweepSeries(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRows(t, "after a sweep", s.rows(t, q), want...)
	q.Step, q.From = step(t, "1m"), noon.Add(-2*time.Minute)
	wantRows(t, "minutes", s.rows(t, q), brief{"23 11:58", 0, false}, brief{"23 11:59", 256, false}, brief{"23 12:00", 1024, false},
		brief{"23 12:01", 0, false}, brief{"23 12:02", 0, false}, brief{"23 12:03", 0, false}, brief{"23 12:04", 0, false})
	q.Counters, q.Step, q.From, q.To = []string{"a", "ab", "a"}, step(t, "1d"), noon, noon.Add(time.Minute)
	wantRows(t, "three counters", s.rows(t, q), brief{"23 00:00", 5461, true}, brief{"23 00:00", 0, true}, brief{"23 00:00", 5461, true})
}

// Each row has the quarter hours of its calendar day, week or month, also where a day has 23 or 25 hours.
func TestSeriesOfCalendars(t *testing.T) {
	t.Parallel()
	months := []time.Time{time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 20, 0, 0, 0, 0, time.UTC)} // clocks change in the six weeks from each
	s := newSeries(t, keepLong)
	s.set(time.Date(2026, 12, 20, 0, 0, 0, 0, time.UTC))
	const long = 42 * 24 * 4
	value := func(quarter int) int64 { return int64(quarter*quarter%1009*2 - 599) }
	for _, m := range months {
		for quarter := range long {
			s.count(t, "a", m.Add(time.Duration(quarter)*15*time.Minute), value(quarter), true)
		}
	}
	lengths := map[string]map[time.Duration]int{}
	check := func(t *testing.T) {
		for _, name := range []string{"UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"} {
			in := zone(t, name)
			lengths[name] = map[time.Duration]int{}
			for stepName, same := range map[string]func(at time.Time) string{
				"1d":  func(at time.Time) string { return at.Format(time.DateOnly) },
				"1w":  func(at time.Time) string { year, week := at.ISOWeek(); return fmt.Sprint(year, " ", week) },
				"1mo": func(at time.Time) string { return at.Format("2006-01") },
			} {
				for _, m := range months {
					want := map[string]int64{}
					for quarter := range long {
						want[same(m.Add(time.Duration(quarter)*15*time.Minute).In(in))] += value(quarter)
					}
					got := map[string]int64{}
					for _, row := range s.rows(t, reader.SeriesQuery{Counters: []string{"a"}, Step: step(t, stepName), From: m.In(in), To: m.Add(long * 15 * time.Minute).In(in)}) {
						got[same(row.Time)] += row.Value
						if stepName == "1d" {
							lengths[name][row.End.Sub(row.Time)]++
						}
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s by %s from %s (-want +got):\n%s", name, stepName, m.Format(time.DateOnly), diff)
					}
				}
			}
		}
	}
	check(t)
	for _, name := range []string{"Europe/Berlin", "America/St_Johns"} {
		if got := lengths[name]; got[23*time.Hour] != 1 || got[25*time.Hour] != 1 {
			t.Errorf("%s: days by their lengths: %v, want one of 23 and one of 25 hours", name, got)
		}
	}
	if err := s.SweepSeries(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t) // of minutes that were joined
}

// Rows before the rule are partial, and have the increments that were folded under it.
func TestSeriesBeginWithTheirRule(t *testing.T) {
	t.Parallel()
	s := newSeries(t, keepLong)
	s.set(noon)
	s.rule(t, store.RuleChange{Pattern: "b", Keep: keepLong})
	s.count(t, "b", noon.Add(-time.Hour), 5, true)
	s.count(t, "b", noon.Add(-2*time.Hour), 70, false)
	s.set(noon.Add(time.Hour))
	s.count(t, "b", noon.Add(30*time.Minute), 6, true)
	q := reader.SeriesQuery{Counters: []string{"a", "b"}, Step: step(t, "30m"), From: noon.Add(-time.Hour), To: noon.Add(time.Hour)}
	found := s.read(t, q)
	wantRows(t, "of a new rule", found.Rows[4:], brief{"23 11:00", 5, true}, brief{"23 11:30", 0, true}, brief{"23 12:00", 0, true}, brief{"23 12:30", 6, false})
	least := noon.Add(store.OldSettings + store.SeriesAhead)
	if begin := found.Begin; begin.Before(least) || begin.After(least.Add(time.Minute)) || found.Unbucketed != int128.Of(70) {
		t.Errorf("begins at %s, %d without a curve; want a minute after %s or less, and 70", begin, found.Unbucketed, least)
	}
	s.rule(t, store.RuleChange{Pattern: "b", Remove: true})
	s.set(noon.Add(2 * time.Hour))
	q.Counters, q.From, q.To = []string{"b"}, noon.Add(30*time.Minute), noon.Add(90*time.Minute)
	wantRows(t, "of a rule that ended", s.rows(t, q), brief{"23 12:30", 6, false}, brief{"23 13:00", 0, true})
}

// Rows of a period that an import filled are whole: alone, and together with those of the rule if it touches them.
func TestSeriesOfAFilledPeriod(t *testing.T) {
	t.Parallel()
	s := newSeries(t, keepLong)
	s.set(noon)
	s.rule(t, store.RuleChange{Pattern: "b", Keep: keepLong})
	s.count(t, "b", noon.Add(-time.Hour), 5, true)
	s.set(noon.Add(time.Hour))
	q := reader.SeriesQuery{Counters: []string{"b"}, Step: step(t, "30m"), From: noon.Add(-90 * time.Minute), To: noon.Add(time.Hour)}
	fill := func(from, to time.Time) {
		t.Helper()
		s.rule(t, store.RuleChange{Pattern: "b", Filled: store.Period{From: from, To: to}})
		s.set(noon.Add(time.Hour))
	}
	fill(noon.Add(-65*time.Minute), noon)
	found := s.read(t, q)
	wantRows(t, "apart", found.Rows, brief{"23 10:30", 0, true}, brief{"23 11:00", 5, false}, brief{"23 11:30", 0, false}, brief{"23 12:00", 0, true}, brief{"23 12:30", 0, false})
	if !found.Begin.After(noon) {
		t.Errorf("begins at %s, want after %s", found.Begin, noon)
	}
	fill(noon.Add(-65*time.Minute), noon.Add(30*time.Minute))
	found = s.read(t, q)
	wantRows(t, "touching", found.Rows, brief{"23 10:30", 0, true}, brief{"23 11:00", 5, false}, brief{"23 11:30", 0, false}, brief{"23 12:00", 0, false}, brief{"23 12:30", 0, false})
	if want := noon.Add(-65 * time.Minute); !found.Begin.Equal(want) {
		t.Errorf("begins at %s, want %s", found.Begin, want)
	}
}

// Rows that are not kept any more are partial, or refused where they would be wrong.
func TestSeriesEndWithTheirRetention(t *testing.T) {
	t.Parallel()
	s := newSeries(t, store.Retention{Minutes: time.Hour, Quarters: 2 * day})
	s.set(noon)
	q := reader.SeriesQuery{Counters: []string{"a"}, Step: step(t, "1d"), From: noon.Add(-3 * day), To: noon}
	wantRows(t, "days", s.rows(t, q), brief{"20 00:00", 0, true}, brief{"21 00:00", 0, true}, brief{"22 00:00", 0, false}, brief{"23 00:00", 0, true})
	q.Step, q.From = step(t, "5m"), noon.Add(-time.Hour)
	if rows := s.rows(t, q); len(rows) != 12 || rows[0].Partial {
		t.Errorf("the minutes that are kept: %+v", briefs(rows))
	}
	q.From = noon.Add(-2 * time.Hour)
	if _, err := s.reader.Series(t.Context(), q); !fieldIs(err, "step") {
		t.Errorf("minutes that were joined: got %v", err)
	}
	// A quarter hour that was joined early says nothing about minutes.
	s.count(t, "a", noon.Add(-50*time.Minute), 9, true)
	s.rule(t, store.RuleChange{Pattern: "a*", Keep: store.Retention{Quarters: 2 * day}})
	s.set(noon.Add(day))
	if err := s.SweepSeries(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.rule(t, store.RuleChange{Pattern: "a*", Keep: store.Retention{Minutes: 30 * time.Hour, Quarters: 2 * day}})
	q.From, q.To, q.Step = noon.Add(-time.Hour), noon.Add(-30*time.Minute), step(t, "10m")
	wantRows(t, "minutes that were joined", s.rows(t, q), brief{"23 11:00", 0, true}, brief{"23 11:10", 0, true}, brief{"23 11:20", 0, false})
}

// Counters whose series are kept for different times have the rows that each has alone, also before a sweep.
func TestSeriesOfSeveralRetentions(t *testing.T) {
	t.Parallel()
	s := newSeries(t, store.Retention{Quarters: 2 * day})
	s.rule(t, store.RuleChange{Pattern: "b", Keep: store.Retention{Quarters: 30 * day}})
	s.set(noon)
	for _, counter := range []string{"a", "b"} {
		s.count(t, counter, noon.Add(-4*day), 5, true)
		s.count(t, counter, noon.Add(-day), 7, true)
	}
	q := reader.SeriesQuery{Counters: []string{"a"}, Step: step(t, "1d"), From: noon.Add(-4 * day), To: noon.Add(-day)}
	a := []brief{{"19 00:00", 0, true}, {"20 00:00", 0, true}, {"21 00:00", 0, true}, {"22 00:00", 7, false}}
	b := []brief{{"19 00:00", 5, false}, {"20 00:00", 0, false}, {"21 00:00", 0, false}, {"22 00:00", 7, false}}
	wantRows(t, "one", s.rows(t, q), a...)
	q.Counters = []string{"a", "b", "a"}
	wantRows(t, "several", s.rows(t, q), slices.Concat(a, b, a)...)
}

func fieldIs(err error, field string) bool {
	e, ok := errors.AsType[*countmill.FieldError](err)
	return ok && e.Field == field && e.Limit != ""
}

func TestSeriesRefuses(t *testing.T) {
	t.Parallel()
	s := newSeries(t, keepLong)
	s.set(noon)
	good := reader.SeriesQuery{Counters: []string{"a"}, Step: step(t, "15m"), From: noon.Add(-time.Hour), To: noon}
	for field, change := range map[string]func(q *reader.SeriesQuery){
		"counter": func(q *reader.SeriesQuery) { q.Counters = []string{""} },
		"to":      func(q *reader.SeriesQuery) { q.To = q.From },
		"from":    func(q *reader.SeriesQuery) { q.From = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) },
		"step":    func(q *reader.SeriesQuery) { q.From = q.To.Add(-10_001 * 15 * time.Minute) },
	} {
		q := good
		change(&q)
		if _, err := s.reader.Series(t.Context(), q); !fieldIs(err, field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
	q := good
	q.From = q.To.Add(-10_000 * 15 * time.Minute)
	if rows := s.rows(t, q); len(rows) != reader.MaxRows {
		t.Errorf("got %d rows, want %d", len(rows), reader.MaxRows)
	}
	// All counters together.
	q.Counters, q.From = []string{"a", "ab"}, q.To.Add(-5000*15*time.Minute)
	if rows := s.rows(t, q); len(rows) != reader.MaxRows {
		t.Errorf("got %d rows of two counters, want %d", len(rows), reader.MaxRows)
	}
	q.From = q.To.Add(-5001 * 15 * time.Minute)
	if _, err := s.reader.Series(t.Context(), q); !fieldIs(err, "step") {
		t.Errorf("5001 rows of each of two counters: got %v", err)
	}
	q = good
	q.Counters = []string{"a", "x"}
	_, err := s.reader.Series(t.Context(), q)
	if none, ok := errors.AsType[*reader.NoSeriesError](err); !ok || none.Counter != "x" {
		t.Errorf("a counter without a rule: got %v", err)
	}
	s.count(t, "a", noon.Add(-50*time.Minute), math.MaxInt64-1, true)
	s.count(t, "a", noon.Add(-time.Minute), -5, true)
	s.count(t, "a", noon.Add(-55*time.Minute), 6, true)
	found, err := s.reader.Series(t.Context(), good)
	over := slices.IndexFunc(found.Rows, func(r reader.Row) bool { return r.Overflow })
	if !errors.Is(err, countmill.ErrOverflow) || over < 0 || found.Rows[over].Value != 0 || slices.ContainsFunc(found.Rows[over+1:], func(r reader.Row) bool { return r.Overflow }) {
		t.Errorf("a row beyond int64: got %+v, %v; want one row with Overflow", found.Rows, err)
	}
	for range 2 {
		s.count(t, "ab", noon.Add(-time.Minute), math.MaxInt64/2+1, true)
	}
	good.Counters = []string{"ab"}
	found, err = s.reader.Series(t.Context(), good)
	if !errors.Is(err, countmill.ErrOverflow) || !found.Rows[3].Overflow || found.Rows[3].Value != 0 || found.Rows[2].Overflow {
		t.Errorf("a minute beyond int64: got %+v, %v; want the last row with Overflow", found.Rows, err)
	}
}

// A deleted counter has empty rows until it exists again, and a reset changes no row.
func TestSeriesOfDeletedCounters(t *testing.T) {
	t.Parallel()
	s := newSeries(t, keepLong)
	s.set(noon)
	s.count(t, "a", noon.Add(-20*time.Minute), 5, true)
	q := reader.SeriesQuery{Counters: []string{"a"}, Step: step(t, "15m"), From: noon.Add(-30 * time.Minute), To: noon}
	reset := func(remove bool) {
		t.Helper()
		look, err := s.reader.Sum(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		r := store.ResetRequest{ID: wire.ResetID("a", time.Now().String()), Counter: "a", Look: look, Delete: remove, At: look.At, ExpireAt: look.At.Add(day)}
		if _, err := s.ResetCounter(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	reset(false)
	wantRows(t, "after a reset", s.rows(t, q), brief{"23 11:30", 5, false}, brief{"23 11:45", 0, false})
	reset(true)
	wantRows(t, "deleted", s.rows(t, q), brief{"23 11:30", 0, false}, brief{"23 11:45", 0, false})
	s.set(noon.Add(time.Minute))
	s.fold(t, "a", noon.Add(-2*time.Minute), 7, true)
	wantRows(t, "incremented by an aggregator that remembers it", s.rows(t, q), brief{"23 11:30", 5, false}, brief{"23 11:45", 7, false})
	reset(true)
	wantRows(t, "deleted again", s.rows(t, q), brief{"23 11:30", 0, false}, brief{"23 11:45", 0, false})
	s.count(t, "a", noon.Add(-2*time.Minute), 1, true)
	wantRows(t, "incremented again", s.rows(t, q), brief{"23 11:30", 5, false}, brief{"23 11:45", 8, false})
}
