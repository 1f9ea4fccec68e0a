package storetest

import (
	"errors"
	"testing"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// spread is n commits' worth of minutes in one: 1 in each of n minutes from m.
func spread(counter string, m wire.Minute, n int) []bucketed {
	deltas := make([]bucketed, n)
	for i := range deltas {
		deltas[i] = bucketed{counter, 0, m + wire.Minute(i), 1}
	}
	return deltas
}

// many is more buckets than a shard keeps.
func many(s store.Store) int { return s.Limits().Ring.Buckets + 6 }

func move(t testing.TB, s store.Store) int {
	t.Helper()
	for range 100 {
		moved, err := s.MoveSeries(t.Context())
		if err == nil {
			return moved
		}
		if !errors.Is(err, store.ErrContended) {
			t.Logf("MoveSeries: %v", err)
		}
	}
	t.Fatalf("MoveSeries fails")
	return 0
}

// A move changes no sum: not of a minute, and not of the count. Shards with few buckets stay.
func testMoveChangesNoSum(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	ring := s.Limits().Ring
	m := today(t, s) - 30 // of two days
	n := many(s)
	few := seriesCommit(nil, spread("few", m, 3)...)
	lots := seriesCommit(nil, append(spread("lots", m, n), bucketed{"lots", 1, m, 100})...)
	var want []store.Bucket
	for i := range n {
		want = append(want, minuteOf(m+wire.Minute(i), 1))
	}
	want[0].Sum = of(101)
	mustFold(t, s, few)
	mustFold(t, s, lots)
	wantSeries(t, "before a move", seriesOf(t, s, "lots"), want...)
	v := s.View()
	defer v.Close()
	lookup(t, v, store.Key{Counter: "lots"})
	if moved := move(t, s); ring.Buckets > 0 && moved != 1 || ring.Buckets == 0 && moved != 0 {
		t.Errorf("MoveSeries moved %d shards, with a ring of %d", moved, ring.Buckets)
	}
	wantSeries(t, "after a move, in a view from before", seriesIn(t, v, "lots", 0, allTime), want...)
	wantSeries(t, "after a move", seriesOf(t, s, "lots"), want...)
	if moved := move(t, s); moved != 0 {
		t.Errorf("a second move moved %d shards", moved)
	}
	// Late folds make buckets anew.
	mustFold(t, s, lots)
	for i := range want {
		want[i].Sum = want[i].Sum.Add(want[i].Sum)
	}
	wantSeries(t, "after a late fold", seriesOf(t, s, "lots"), want...)
	// Further minutes fill the ring again, and the next move meets minutes that the archive has.
	mustFold(t, s, seriesCommit(nil, spread("lots", m+wire.Minute(n), n)...))
	for i := range n {
		want = append(want, minuteOf(m+wire.Minute(n+i), 1))
	}
	if moved := move(t, s); ring.Buckets > 0 && moved != 1 {
		t.Errorf("another move moved %d shards", moved)
	}
	wantSeries(t, "after another move", seriesOf(t, s, "lots"), want...)
	wantSeries(t, "of few", seriesOf(t, s, "few"), minuteOf(m, 1), minuteOf(m+1, 1), minuteOf(m+2, 1))
	if got := lookup(t, s.View(), store.Key{Counter: "lots"})[0]; got.Count != of(int64(3*n)) || got.Bucketed != got.Count {
		t.Errorf("the moves changed the shard: %+v, want a count of %d, all of it bucketed", got, 3*n)
	}
}

// An old bucket goes into the archive with its fold, and costs an entity for each day.
func testFoldArchives(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	m := today(t, s) - 9*store.DayMinutes
	c := seriesCommit(one(marker()), bucketed{"a", 0, m, 5}, bucketed{"a", 0, m + 1, 6}, bucketed{"a", 0, m + store.DayMinutes, 7}, bucketed{"b", 0, m, 8},
		bucketed{"b", 0, m + 9*store.DayMinutes, 9})
	c.Archive = archiveOf(t, s)
	want := 3
	if s.Limits().Ring.Window > 0 {
		want += 3
	}
	if got := c.Entities(); got != want {
		t.Errorf("the commit has %d entities, want %d", got, want)
	}
	mustFold(t, s, c)
	if _, err := s.Fold(t.Context(), c); !errors.Is(err, store.ErrMarkerExists) {
		t.Errorf("the same commit again: %v", err)
	}
	wantSeries(t, "a", seriesOf(t, s, "a"), minuteOf(m, 5), minuteOf(m+1, 6), minuteOf(m+store.DayMinutes, 7))
	wantSeries(t, "b", seriesOf(t, s, "b"), minuteOf(m, 8), minuteOf(m+9*store.DayMinutes, 9))
	// The same minutes in the ring.
	c.Markers, c.Archive = nil, 0
	mustFold(t, s, c)
	wantSeries(t, "a, in ring and archive", seriesOf(t, s, "a"), minuteOf(m, 10), minuteOf(m+1, 12), minuteOf(m+store.DayMinutes, 14))
}

// archiveOf is Commit.Archive now.
func archiveOf(t testing.TB, s store.Store) wire.Minute {
	return s.Limits().Ring.Archive(readTime(t, s))
}
