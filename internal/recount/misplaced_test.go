package recount_test

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
)

// A shard under a key that no look-up has counts nowhere: it is not in its counter's total, so it moves no group either. A
// counter whose only copy of a shard is there is corrected.
func TestMisplacedShards(t *testing.T) {
	t.Parallel()
	forKinds(t, misplaced)
}

func misplaced(t *testing.T, r *rig) {
	const counter = "page:s1:1"
	r.History(60)
	r.ok(r.Fold(r.NewID(), r.first, map[string]int64{counter: 7000}))
	want := r.State()
	misplace := func(add store.ShardDelta) {
		_, err := r.Store.Store.Fold(t.Context(), &store.Commit{ // without the checks of protocoltest
			Correction: true, Rules: r.Settings().Version, Markers: []store.Marker{r.marker(r.NewID())}, Adds: []store.ShardDelta{add},
		})
		r.ok(err)
	}
	same := func(what string) {
		t.Helper()
		r.Nothing(what)
		if diff := gocmp.Diff(want.Totals, r.State().Totals); diff != "" {
			t.Errorf("totals %s (-before +now):\n%s", what, diff)
		}
	}
	misplace(store.ShardDelta{Counter: counter, Delta: 1000}) // without its Order and Hash
	misplace(store.ShardDelta{Counter: "page:s1:none", Delta: 2000})
	misplace(store.NewShardDelta(counter, countmill.MaxShards, 4000))
	r.Recount(recount.Query{Repair: true})
	same("with misplaced shards")
	r.Check1()
	same("after a check of the index")

	add := store.NewShardDelta(counter, 0, -500)
	set := r.Settings()
	r.ok(r.fold(&store.Commit{
		Correction: true, Rules: set.Version, Markers: []store.Marker{r.marker(r.NewID())},
		Adds: []store.ShardDelta{add}, Grouped: []store.Grouping{{Indexes: []int64{set.Rules.Indexes[0].Number}}},
	}))
	misplace(store.ShardDelta{Counter: counter, Delta: 500})
	if got := r.Recount(recount.Query{Repair: true}); len(got.Findings) != 1 {
		t.Errorf("500 moved to a misplaced shard: found %+v, want the counter", got.Findings)
	}
	r.Nothing("after the repair")
	if got := r.State().Totals[counter]; got != want.Totals[counter] {
		t.Errorf("the counter has %d after the repair, want %d", got, want.Totals[counter])
	}
}
