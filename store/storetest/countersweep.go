package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
)

// For aggregators a deleted counter has no record, and their growth makes it exist again.
func testDeleteEndsWithAGrowth(t *testing.T, su *suite) {
	s := su.open(t)
	deleteIt := func() store.Sum {
		d := resetOf("a", look(t, s, "a"))
		d.Delete = true
		reset(t, s, d)
		got := look(t, s, "a")
		if got.DeletedAt.IsZero() || got.Baseline != got.Sum {
			t.Errorf("after a delete the record is %+v", got)
		}
		if got := shards(t, s, "a"); got[0] != 0 {
			t.Errorf("Shards of a deleted counter: got %d, want 0", got[0])
		}
		return got
	}
	grow(t, s, store.Growth{Counter: "a", Shards: 6})
	mustFold(t, s, commit(nil, add("a", 5, 2)))
	for name, back := range map[string]func(){
		"Grow":             func() { grow(t, s, store.Growth{Counter: "a", Shards: 1}) },
		"a fold's growths": func() { foldGrowth(t, s, "a") },
	} {
		if name == "a fold's growths" && !s.Limits().GrowsInFold {
			continue
		}
		was := deleteIt()
		if got := deleteIt(); !got.DeletedAt.Equal(was.DeletedAt) {
			t.Errorf("a second delete moved deleted_at from %s to %s", was.DeletedAt, got.DeletedAt)
		}
		back()
		got := look(t, s, "a")
		if !got.DeletedAt.IsZero() || got.Baseline != was.Baseline || shards(t, s, "a")[0] != 6 {
			t.Errorf("after %s: %+v with %d shards; want it not deleted, and the rest as before", name, got, shards(t, s, "a")[0])
		}
	}
}

func foldGrowth(t *testing.T, s store.Store, counter string) {
	t.Helper()
	c := commit(nil, add(counter, 0, 1))
	c.Growths = []store.Growth{{Counter: counter, Shards: 1}}
	mustFold(t, s, c)
}

// A sweep removes a deleted counter with all its shards when it is due, unless it was counted or grown
// since.
func testSweepRemovesDeletedCounters(t *testing.T, su *suite) {
	s := su.open(t)
	names := []string{"counted", "gone", "kept", "regrown"}
	for _, name := range names {
		grow(t, s, store.Growth{Counter: name, Shards: 20})
		mustFold(t, s, commit(nil, add(name, 0, 3), add(name, 19, 4)))
		if name == "kept" {
			continue
		}
		d := resetOf(name, look(t, s, name))
		d.Delete = true
		reset(t, s, d)
	}
	sweep := func(after time.Duration, want int) {
		t.Helper()
		removed := 0
		for range 5 {
			n, err := s.SweepCounters(t.Context(), after)
			if err != nil {
				t.Fatalf("SweepCounters: %v", err)
			}
			removed += n
		}
		if removed != want {
			t.Errorf("SweepCounters after %s: removed %d, want %d", after, removed, want)
		}
	}
	sweep(time.Hour, 0)
	mustFold(t, s, commit(nil, add("counted", 7, 1)))
	grow(t, s, store.Growth{Counter: "regrown", Shards: 20})
	<-time.After(2 * time.Millisecond)
	sweep(time.Microsecond, 1)
	checkLook(t, s, "gone", store.Sum{})
	if got := sum(t, s, "gone", 20); got != 0 {
		t.Errorf("shards of a swept counter: got %d, want none", got)
	}
	var listed []string
	for _, r := range list(t, s, "", "", 10) {
		listed = append(listed, r.Counter)
	}
	if diff := cmp.Diff([]string{"counted", "kept", "regrown"}, listed); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	if got := look(t, s, "counted"); got.Sum.Sub(got.Baseline) != of(1) || !got.DeletedAt.IsZero() {
		t.Errorf("a counter that was counted after its delete: got %+v, want a total of 1, and not deleted", got)
	}
	sweep(time.Microsecond, 0)
	grow(t, s, store.Growth{Counter: "gone", Shards: 2})
	mustFold(t, s, commit(nil, add("gone", 1, 9)))
	checkLook(t, s, "gone", store.Sum{Exists: true, Sum: of(9)})
}
