package pebble

import (
	"testing"

	"github.com/countmill/countmill/store"
)

// The sweep keeps a deleted counter of an index, until nothing of the index is left: another reading of the
// range would take its increments from its group.
func TestSweepKeepsCountersOfIndexes(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	sweep := func(rounds, want int) {
		t.Helper()
		removed := 0
		for range rounds {
			n, err := s.SweepCounters(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			removed += n
		}
		if removed != want {
			t.Errorf("%d counters removed, want %d", removed, want)
		}
	}
	change := func(step store.IndexStep, x store.Index) store.Settings {
		t.Helper()
		x.Name = "sites"
		set, err := s.ChangeRules(t.Context(), store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	for _, name := range []string{"page:a:x", "other"} {
		mustRaise(t, s, name)
		fold(t, s, nil, name, 5)
		remove(t, s, name, 5)
	}
	sweep(sweepRounds-1, 0)
	set := change(store.CreateIndex, store.Index{Match: "page:{site}:*", Group: "site:{site}"})
	sweep(2*sweepRounds, 1) // other
	if got := total(t, s, "page:a:x"); got != 5 {
		t.Errorf("the shard of a counter in an index holds %d, want 5", got)
	}
	change(store.DeleteIndex, store.Index{})
	sweep(2*sweepRounds, 0)
	change(store.RemoveIndex, store.Index{Number: set.Rules.Index("sites").Number})
	sweep(sweepRounds, 1)
}
