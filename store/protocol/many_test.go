package protocol_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A counter, and a group, with more days than a commit takes rows goes whole.
func TestRemovalsOfManyDays(t *testing.T) {
	t.Parallel()
	l := limits["cramped"]
	s := open(t, l)
	createIndex(t, s)
	var days []wire.Minute
	for i := range l.Rows + 50 {
		days = append(days, wire.MinuteOf(time.Now())-wire.Minute(300-i)*store.DayMinutes)
	}
	for _, counter := range []string{"=site:a", "gone"} {
		grow(t, s, counter)
		for lot := range slices.Chunk(days, 100) {
			foldMinutes(t, s, counter, lot...)
		}
	}
	remove(t, s, "gone")
	sweepOnce(t, s, 0, 1)
	if left := s.stored(t, "day"); len(left) != len(days) {
		t.Errorf("after the sweep %d days are left, want the %d of the group", len(left), len(days))
	}
	x := changeIndex(t, s, store.DeleteIndex, store.Index{})
	if n, err := s.DropGroups(t.Context(), x, 10); n != 1 || err != nil {
		t.Errorf("DropGroups: %d, %v", n, err)
	}
	for _, kind := range []string{"record", "shard", "day"} {
		if left := s.stored(t, kind); len(left) > 0 {
			t.Errorf("%d rows of the kind %s are left", len(left), kind)
		}
	}
}

// A page of a reading ends after so many keys of other counters, and the next one goes on behind them.
func TestReadingPassesOtherCounters(t *testing.T) {
	t.Parallel()
	s := open(t, limits["pebble"])
	c := &store.Commit{Rules: store.AnyRules, Adds: []store.ShardDelta{store.NewShardDelta("page:a:1", 0, 7), store.NewShardDelta("page:a:2", 0, 9)}}
	for i := range 25_000 {
		c.Adds = append(c.Adds, store.NewShardDelta(fmt.Sprint("other:", i), 0, 1))
	}
	slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int {
		if a.Order < b.Order {
			return -1
		}
		return 1
	})
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	x := createIndex(t, s)
	found, pages := map[string]string{}, 0
	for from := ""; pages == 0 || from != ""; pages++ {
		page, err := s.Ungrouped(t.Context(), x, &store.IndexRange{Index: x.Number, ID: 1, To: math.MaxUint64}, from, 10)
		if err != nil || pages > 5 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, u := range page.Remainders {
			found[u.Counter] += u.Remainder.String()
		}
		from = page.Next
	}
	if got := fmt.Sprint(found); got != "map[page:a:1:7 page:a:2:9]" || pages != 3 {
		t.Errorf("%d pages have %s", pages, got)
	}
}
