package protocol_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/wire"
)

// A look at all sums leaves out shards beyond the record, those that no look-up finds, and counters that are deleted. It does so in
// the order of names, with look-ups, and in the order of places.
func TestSumsGoByRecords(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"datastore": 0, "pebble": 0, "pebble walk": 20_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, limits[strings.Fields(name)[0]])
			x, err := store.ParseIndex("pages", "page:{x}", "pages:{x}")
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int64{"page:b": 10, "page:d": 5, "page:reset": 4}
			c := &store.Commit{}
			for i := range others {
				name := fmt.Sprint("page:", i)
				c.Adds = append(c.Adds, store.NewShardDelta(name, 0, 1))
				c.Growths = append(c.Growths, store.Growth{Counter: name, Shards: 1})
				want[name] = 1
			}
			sortCommit(c)
			folded(t, s, c)
			for counter, shards := range map[string]int{"page:b": 2, "page:c": 1, "page:d": 1} {
				if err := s.Grow(t.Context(), []store.Growth{{Counter: counter, Shards: shards}}); err != nil {
					t.Fatal(err)
				}
			}
			misplaced := store.ShardDelta{Counter: "page:d", Order: wire.Order("page:d") + 1<<40, Hash: wire.HashCounter("page:d") + 1<<40, Delta: 2000}
			for _, a := range []store.ShardDelta{
				store.NewShardDelta("page:b", 0, 3), store.NewShardDelta("page:b", 1, 7), store.NewShardDelta("page:c", 0, 1000),
				store.NewShardDelta("page:d", 0, 5), store.NewShardDelta("page:d", 1, 500), store.NewShardDelta("other:e", 0, 9), misplaced,
			} {
				folded(t, s, &store.Commit{Adds: []store.ShardDelta{a}})
			}
			if err := s.Grow(t.Context(), []store.Growth{{Counter: "page:reset", Shards: 1}}); err != nil {
				t.Fatal(err)
			}
			fold(t, s, "page:reset", 100)
			remove(t, s, "page:reset")
			fold(t, s, "page:reset", 4)
			remove(t, s, "page:c")
			got := make(map[string]int64)
			if _, err := s.Sums(t.Context(), &store.SumsQuery{Index: &x}, func(c *store.CounterSum) error { got[string(c.Counter)] += c.Sum; return nil }); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(got, want) {
				t.Error(gocmp.Diff(want, got))
			}
		})
	}
}

func folded(t *testing.T, s store.Store, c *store.Commit) {
	t.Helper()
	c.Rules = store.AnyRules
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func sortCommit(c *store.Commit) {
	slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int { return cmp.Compare(a.Order, b.Order) })
	slices.SortFunc(c.Growths, func(a, b store.Growth) int { return strings.Compare(a.Counter, b.Counter) })
}

// A fold that comes after the moment of a look at all sums is a change since then.
func TestChangesUnderWay(t *testing.T) {
	t.Parallel()
	s := open(t, limits["pebble"])
	x, err := store.ParseIndex("pages", "page:{x}", "pages:{x}")
	if err != nil {
		t.Fatal(err)
	}
	s.between(memory.Scan, func() { fold(t, s, "page:a", 1) })
	sums, err := s.Sums(t.Context(), &store.SumsQuery{Index: &x}, func(*store.CounterSum) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if now, known := s.Changes(); !known || now == sums.Changes {
		t.Errorf("the look knows %d changes, and after a fold there are %d", sums.Changes, now)
	}
}
