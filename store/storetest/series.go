package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A bucketed is a delta in a minute of a shard's counter.
type bucketed struct {
	counter string
	shard   int
	minute  wire.Minute
	delta   int64
}

// seriesCommit adds the deltas to totals and to series.
func seriesCommit(markers []store.Marker, deltas ...bucketed) *store.Commit {
	type shard struct {
		counter string
		shard   int
	}
	sums := make(map[shard]int64)
	for _, d := range deltas {
		sums[shard{d.counter, d.shard}] += d.delta
	}
	var adds []store.ShardDelta
	for key, sum := range sums {
		adds = append(adds, add(key.counter, key.shard, sum))
	}
	c := commit(markers, adds...)
	for i, a := range c.Adds {
		for _, d := range deltas {
			if d.counter == a.Counter && d.shard == a.Shard {
				c.Buckets = append(c.Buckets, store.BucketDelta{Add: i, Minute: d.minute, Delta: d.delta})
			}
		}
	}
	slices.SortFunc(c.Buckets, func(a, b store.BucketDelta) int { return cmp.Or(a.Add-b.Add, int(a.Minute-b.Minute)) })
	return c
}

const allTime = wire.Minute(math.MaxInt32)

// seriesOf reads a whole series in a view of its own.
func seriesOf(t testing.TB, s store.Store, counter string) []store.Bucket {
	t.Helper()
	v := s.View()
	defer v.Close()
	return seriesIn(t, v, counter, 0, allTime)
}

// recordsOf are records of counters with 3 shards.
func recordsOf(counters ...string) (of []store.Record) {
	for _, c := range counters {
		of = append(of, store.Record{Counter: c, Shards: 3})
	}
	return of
}

func seriesIn(t testing.TB, v store.View, counter string, from, to wire.Minute) []store.Bucket {
	t.Helper()
	found, err := v.Series(t.Context(), recordsOf(counter), from, to)
	if err != nil || len(found) != 1 {
		t.Fatalf("Series of %q: %d series, %v", counter, len(found), err)
	}
	return found[0]
}

func wantSeries(t testing.TB, what string, got []store.Bucket, want ...store.Bucket) {
	t.Helper()
	if diff := gocmp.Diff(want, got, equateEmpty); diff != "" {
		t.Errorf("%s: series (-want +got):\n%s", what, diff)
	}
}

func minuteOf(m wire.Minute, sum int64) store.Bucket { return store.Bucket{Minute: m, Sum: of(sum)} }

// seriesStore is an empty store with a rule for all counters.
func seriesStore(t *testing.T, su *suite) store.Store {
	t.Helper()
	s := su.open(t)
	addRule(t, s, "*", keep)
	return s
}

// today is midnight before the store's time, in UTC.
func today(t testing.TB, s store.Store) wire.Minute {
	m := wire.MinuteOf(readTime(t, s))
	return m - m%store.DayMinutes
}

func testSeriesSums(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	m := today(t, s)
	mustFold(t, s, seriesCommit(nil, bucketed{"a", 0, m, 5}, bucketed{"a", 0, m + 1, 3}, bucketed{"b", 0, m, 100}))
	mustFold(t, s, seriesCommit(one(marker()), bucketed{"a", 0, m + 1, -10}, bucketed{"a", 1, m + 1, 1}, bucketed{"a", 0, m - 1, 7}))
	mustFold(t, s, commit(nil, add("a", 0, 1000)))
	mustFold(t, s, seriesCommit(nil, bucketed{"c", 0, m, 5}, bucketed{"c", 0, m + 1, -5}))
	wantSeries(t, "all of a", seriesOf(t, s, "a"), minuteOf(m-1, 7), minuteOf(m, 5), minuteOf(m+1, -6))
	wantSeries(t, "sums that cancel out", seriesOf(t, s, "c"), minuteOf(m, 5), minuteOf(m+1, -5))
	wantSeries(t, "nobody's", seriesOf(t, s, "aa"))
	v := s.View()
	defer v.Close()
	wantSeries(t, "a part of a", seriesIn(t, v, "a", m-1, m+1), minuteOf(m-1, 7), minuteOf(m, 5))
	wantSeries(t, "nothing of a", seriesIn(t, v, "a", m+2, m+2))
	values := lookup(t, v, store.Key{Counter: "a", Shard: 0}, store.Key{Counter: "a", Shard: 1}, store.Key{Counter: "c", Shard: 0})
	if a0, a1, c := values[0], values[1], values[2]; a0.Count != of(1005) || a0.Bucketed != of(5) || a1.Count != of(1) || a1.Bucketed != of(1) || c.Count != of(0) || c.Bucketed != of(0) {
		t.Errorf("counts and bucketed parts: got %+v, want 1005 and 5, 1 and 1, 0 and 0", values)
	}
}

// Each counter of a call has its series, in the order asked: also a counter asked for twice, a counter of several shards, and
// an absent one.
func testSeriesOfManyCounters(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	m := today(t, s)
	old := seriesCommit(nil, bucketed{"b", 0, m - 3*store.DayMinutes, 7}, bucketed{"a", 0, m - 9*store.DayMinutes, 9})
	old.Archive = archiveOf(t, s)
	mustFold(t, s, old)
	mustFold(t, s, seriesCommit(nil, bucketed{"b", 0, m, 1}, bucketed{"b", 1, m, 10}, bucketed{"b", 2, m + 1, 100}, bucketed{"a", 0, m + 1, 5}))
	v := s.View()
	defer v.Close()
	for from, earlier := range map[wire.Minute][2][]store.Bucket{
		0:                          {{minuteOf(m-9*store.DayMinutes, 9)}, {minuteOf(m-3*store.DayMinutes, 7)}},
		m - 5*store.DayMinutes:     {nil, {minuteOf(m-3*store.DayMinutes, 7)}},
		m - 3*store.DayMinutes + 1: {},
	} {
		a, b := append(earlier[0], minuteOf(m+1, 5)), append(earlier[1], minuteOf(m, 11), minuteOf(m+1, 100))
		found, err := v.Series(t.Context(), recordsOf("c", "b", "a", "b", "aa"), from, m+2)
		if diff := gocmp.Diff([][]store.Bucket{nil, b, a, b, nil}, found, equateEmpty); err != nil || diff != "" {
			t.Errorf("from %d: %v, series (-want +got):\n%s", from-m, err, diff)
		}
	}
	if found, err := v.Series(t.Context(), nil, 0, allTime); err != nil || len(found) != 0 {
		t.Errorf("of no counter: %+v, %v", found, err)
	}
}

func testSeriesIsPinned(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	m := today(t, s)
	mustFold(t, s, seriesCommit(nil, bucketed{"a", 0, m, 1}))
	v := s.View()
	defer v.Close()
	lookup(t, v, store.Key{Counter: "zzz"})
	mustFold(t, s, seriesCommit(nil, bucketed{"a", 0, m, 10}, bucketed{"a", 0, m + 1, 10}))
	wantSeries(t, "in a view from before", seriesIn(t, v, "a", 0, allTime), minuteOf(m, 1))
	var beside errgroup.Group
	for range 8 {
		beside.Go(func() error {
			found, err := v.Series(t.Context(), recordsOf("a"), 0, allTime)
			if err == nil && !slices.Equal(found[0], []store.Bucket{minuteOf(m, 1)}) {
				err = fmt.Errorf("got %+v", found)
			}
			return err
		})
	}
	if err := beside.Wait(); err != nil {
		t.Errorf("beside other calls, in a view from before: %v", err)
	}
}

// A bucket is exact beyond int64, in a shard and over several, before and after a move, and when it comes back.
func testSeriesBeyondInt64(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	m := today(t, s) - 30
	mustFold(t, s, seriesCommit(nil, bucketed{"a", 0, m, math.MaxInt64}, bucketed{"b", 0, m, 1}))
	mustFold(t, s, seriesCommit(nil, bucketed{"a", 0, m, math.MaxInt64}, bucketed{"a", 1, m, 5}))
	far := store.Bucket{Minute: m, Sum: of(math.MaxInt64).Add(of(math.MaxInt64)).Add(of(5))}
	wantSeries(t, "beyond int64", seriesOf(t, s, "a"), far)
	n := many(s)
	mustFold(t, s, seriesCommit(nil, spread("a", m+1, n)...))
	move(t, s)
	want := []store.Bucket{far}
	for i := range n {
		want = append(want, minuteOf(m+1+wire.Minute(i), 1))
	}
	wantSeries(t, "after a move", seriesOf(t, s, "a"), want...)
	mustFold(t, s, seriesCommit(nil, bucketed{"a", 1, m, -math.MaxInt64}))
	mustFold(t, s, seriesCommit(nil, bucketed{"a", 0, m, -math.MaxInt64}))
	want[0] = minuteOf(m, 5)
	wantSeries(t, "back again", seriesOf(t, s, "a"), want...)
	old := store.QuarterOf(m - 5*store.DayMinutes)
	for minute := range wire.Minute(3) {
		c := seriesCommit(nil, bucketed{"joined", 0, old + minute/2, math.MaxInt64})
		c.Archive = archiveOf(t, s)
		mustFold(t, s, c)
	}
	sweepSeries(t, s)
	sum := of(math.MaxInt64).Add(of(math.MaxInt64)).Add(of(math.MaxInt64))
	wantSeries(t, "joined", seriesOf(t, s, "joined"), store.Bucket{Minute: old, Quarter: true, Sum: sum})
}

// Sums are joined and removed when their promises are over, and not before.
func testSweepSeriesKeepsPromises(t *testing.T, su *suite) {
	s := su.open(t)
	addRule(t, s, "short", store.Retention{Minutes: time.Hour, Quarters: 30 * day})
	addRule(t, s, "long", store.Retention{Minutes: 7 * day, Quarters: 400 * day})
	now := wire.MinuteOf(readTime(t, s))
	midnight := now - now%store.DayMinutes
	young, days4, days40, days500 := now-1, midnight-4*store.DayMinutes, midnight-40*store.DayMinutes, midnight-500*store.DayMinutes
	for _, name := range []string{"short", "long", "ruleless"} {
		c := seriesCommit(nil, bucketed{name, 0, young, 1}, bucketed{name, 0, days4 + 16, 2}, bucketed{name, 0, days4 + 29, 3},
			bucketed{name, 0, days4 + 30, 4}, bucketed{name, 0, days40 + 5, 5}, bucketed{name, 0, days500, 6})
		c.Archive = archiveOf(t, s)
		mustFold(t, s, c)
	}
	quarter := func(m wire.Minute, sum int64) store.Bucket {
		return store.Bucket{Minute: m, Quarter: true, Sum: of(sum)}
	}
	wantSwept := func(what string) {
		t.Helper()
		sweepSeries(t, s)
		wantSeries(t, what+", short", seriesOf(t, s, "short"), quarter(days4+15, 5), quarter(days4+30, 4), minuteOf(young, 1))
		wantSeries(t, what+", long", seriesOf(t, s, "long"), quarter(days40, 5), minuteOf(days4+16, 2), minuteOf(days4+29, 3), minuteOf(days4+30, 4), minuteOf(young, 1))
	}
	wantSwept("swept")
	wantSwept("swept again")
	for _, b := range seriesOf(t, s, "ruleless") {
		if b.Minute < midnight-store.DayMinutes {
			t.Errorf("a counter without a rule keeps %+v", b)
		}
	}
	if got := count(t, s, "short", 0); got != 21 {
		t.Errorf("the sweep changed the count to %d, want 21", got)
	}
	// A late increment of a quarter hour that was joined is in its bucket.
	lateFold := seriesCommit(nil, bucketed{"short", 0, days4 + 17, 100})
	lateFold.Archive = archiveOf(t, s)
	mustFold(t, s, lateFold)
	var late int64
	for _, b := range seriesOf(t, s, "short") {
		if store.QuarterOf(b.Minute) == days4+15 {
			late += small(t, b.Sum)
		}
	}
	if late != 105 {
		t.Errorf("a quarter hour that was joined, and a late increment: got %d, want 105", late)
	}
}

func sweepSeries(t testing.TB, s store.Store) {
	t.Helper()
	if err := s.SweepSeries(t.Context()); err != nil {
		t.Fatalf("SweepSeries: %v", err)
	}
}

func mustFoldRetrying(t testing.TB, s store.Store, c *store.Commit) {
	t.Helper()
	if maybe, err := foldRetrying(t.Context(), s, c); err != nil && !(maybe && errors.Is(err, store.ErrMarkerExists)) {
		t.Fatalf("Fold: %v", err)
	}
}

// A deleted counter takes its series along.
func testSeriesGoesWithItsCounter(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	m := today(t, s)
	for _, name := range []string{"gone", "gone2"} {
		grow(t, s, store.Growth{Counter: name, Shards: 1})
		c := seriesCommit(nil, bucketed{name, 0, m, 1}, bucketed{name, 0, m - 3*store.DayMinutes, 1})
		c.Archive = archiveOf(t, s)
		mustFold(t, s, c)
	}
	d := resetOf("gone", look(t, s, "gone"))
	d.Delete = true
	reset(t, s, d)
	if got := seriesOf(t, s, "gone"); len(got) != 2 {
		t.Errorf("a reset or a delete changed the series: got %+v", got)
	}
	<-time.After(2 * time.Millisecond) // deleted before the sweep, by any clock
	for range 5 {
		if _, err := s.SweepCounters(t.Context(), 0); err != nil {
			t.Fatalf("SweepCounters: %v", err)
		}
	}
	wantSeries(t, "of a counter that was swept", seriesOf(t, s, "gone"))
	if got := seriesOf(t, s, "gone2"); len(got) != 2 {
		t.Errorf("the series of another counter is %+v", got)
	}
}
