package reader_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

// resetStore has counters a to f, of which all but a were reset, and d to f deleted.
func resetStore() *fakeStore {
	at := time.Now().Add(-time.Hour)
	s := &fakeStore{resets: map[string]store.ResetState{
		"b": {Baseline: int128.Of(5), ResetAt: at},
		"c": {Baseline: int128.Of(-7), ResetAt: at},
		"d": {Baseline: int128.Of(6), ResetAt: at, DeletedAt: at},
		"e": {Baseline: int128.Of(7), ResetAt: at, DeletedAt: at},
		"f": {ResetAt: at, DeletedAt: at},
	}}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		s.put(name, 1, 2, 3)
	}
	s.put("f", 0)
	return s
}

// A total has the increments folded since the last reset. A deleted counter does not exist until
// the next fold.
func TestResetsAreTakenOff(t *testing.T) {
	t.Parallel()
	r := newReader(t, resetStore(), nil, reader.Config{})
	want := []reader.Total{
		{Counter: "a", Total: 6, Shards: 3, Exists: true},
		{Counter: "b", Total: 1, Shards: 3, Exists: true},
		{Counter: "c", Total: 13, Shards: 3, Exists: true},
		{Counter: "d"},
		{Counter: "e", Total: -1, Shards: 3, Exists: true},
		{Counter: "f"},
	}
	totals, err := r.Totals(t.Context(), []string{"a", "b", "c", "d", "e", "f"}, 0)
	ignore := cmpopts.IgnoreFields(reader.Total{}, "AsOf", "Source")
	if diff := cmp.Diff(want, totals, ignore); diff != "" || err != nil {
		t.Errorf("Totals: %v (-want +got):\n%s", err, diff)
	}
	listed := pages(t, r, "", 2)
	if want := []string{"a b", "c", "e"}; !slices.Equal(listed, want) {
		t.Errorf("pages of 2: got %q, want %q", listed, want)
	}
	page, err := r.List(t.Context(), "", "", 10)
	shown := slices.DeleteFunc(want, func(t reader.Total) bool { return !t.Exists })
	if diff := cmp.Diff(shown, page.Totals, ignore); diff != "" || err != nil {
		t.Errorf("List: %v (-want +got):\n%s", err, diff)
	}
}
