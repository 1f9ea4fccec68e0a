package reader_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countmill/countmill"
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

func TestOverflowOfTheDifference(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		shards   []store.Value
		baseline int64
		want     int64
		over     bool
	}{
		"at the top":                {vals(math.MaxInt64 - 1), -1, math.MaxInt64, false},
		"over the top":              {vals(math.MaxInt64 - 1), -2, 0, true},
		"at the bottom":             {vals(math.MinInt64 + 1), 1, math.MinInt64, false},
		"below the bottom":          {vals(math.MinInt64 + 1), 2, 0, true},
		"as far as can be":          {vals(1), math.MinInt64, 0, true},
		"and back":                  {vals(-1), math.MinInt64, math.MaxInt64, false},
		"the sum alone is too much": {vals(math.MaxInt64-1, 9), 10, math.MaxInt64 - 2, false},
	} {
		st := &fakeStore{resets: map[string]store.ResetState{"c": {Baseline: int128.Of(tc.baseline), ResetAt: time.Now()}}}
		st.putValues("c", tc.shards...)
		r := newReader(t, st, nil, reader.Config{})
		totals, err := r.Totals(t.Context(), []string{"c"}, 0)
		if tc.over != errors.Is(err, countmill.ErrOverflow) || !tc.over && (err != nil || totals[0].Total != tc.want) {
			t.Errorf("%s: got %+v, %v, want %d, overflow %t", name, totals, err, tc.want, tc.over)
		}
	}
}

// A reset uses Sum: the sum of the shards, and the state in the record.
func TestSum(t *testing.T) {
	t.Parallel()
	st := resetStore()
	r := newReader(t, st, nil, reader.Config{})
	for counter, want := range map[string]store.Sum{
		"b": {Exists: true, Sum: int128.Of(6)}, "d": {Exists: true, Sum: int128.Of(6)}, "x": {},
	} {
		want.ResetState = st.resets[counter]
		before := time.Now()
		got, err := r.Sum(t.Context(), counter)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(store.Sum{}, "At")); diff != "" || err != nil || got.At.Before(before) {
			t.Errorf("Sum of %s: %v, at %s (-want +got):\n%s", counter, err, got.At, diff)
		}
	}
	st.putValues("over", vals(math.MaxInt64, 1)...)
	if got, err := r.Sum(t.Context(), "over"); err != nil || got.Sum != int128.Of(math.MaxInt64).Add(int128.Of(1)) {
		t.Errorf("Sum beyond int64: got %+v, %v", got, err)
	}
	if _, err := r.Sum(t.Context(), ""); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("Sum of no counter: got %v", err)
	}
}

// A cached total from before a reset is served as long as callers accept its age, and a
// deleted counter that was cached stays deleted.
func TestResetIsVisibleWithinTheStaleness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st, cache := resetStore(), &fakeCache{}
		delete(st.resets, "b")
		r := newReader(t, st, cache, reader.Config{})
		for _, step := range []struct {
			pass, staleness time.Duration
			want            int64
			source          string
		}{
			{0, time.Second, 6, reader.SourceStore},
			{500 * time.Millisecond, time.Second, 6, reader.SourceCache},
			{0, 0, 0, reader.SourceStore},
			{600 * time.Millisecond, time.Second, 0, reader.SourceStore},
			{0, time.Second, 0, reader.SourceCache},
		} {
			time.Sleep(step.pass)
			got := one(t, r, "b", step.staleness)
			if got.Total != step.want || got.Source != step.source || got.Exists != (step.want != 0) {
				t.Errorf("with %s permitted: got %+v, want %d from the %s", step.staleness, got, step.want, step.source)
			}
			st.mu.Lock()
			st.resets["b"] = store.ResetState{Baseline: int128.Of(6), ResetAt: time.Now(), DeletedAt: time.Now()}
			st.mu.Unlock()
		}
	})
}
