package pebble

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A leaderboard leaves out shards that no look-up finds, however it reads the sums.
func TestSumsWithMisplacedShards(t *testing.T) {
	t.Parallel()
	for _, looked := range []int{-1, 100} {
		s := open(t, Config{Dir: t.TempDir(), looked: looked})
		index, err := store.ParseIndex("sites", "page:{site}:*", "site:{site}")
		if err != nil {
			t.Fatal(err)
		}
		for _, add := range []store.ShardDelta{
			store.NewShardDelta("page:a:1", 0, 10),
			{Counter: "page:a:1", Delta: 1000},
			{Counter: "page:a:1", Order: wire.Order("page:a:1") + 1, Delta: 2000},
		} {
			c := &store.Commit{Rules: store.AnyRules, Adds: []store.ShardDelta{add}, Growths: []store.Growth{{Counter: "page:a:1", Shards: 1}}}
			if _, err := s.Fold(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		var got []int64
		if _, err := s.Sums(t.Context(), &store.SumsQuery{Index: &index}, func(c *store.CounterSum) error {
			got = append(got, c.Sum)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int64{10}, got); diff != "" {
			t.Errorf("with look-ups of %d counters (-want +got):\n%s", looked, diff)
		}
	}
}
