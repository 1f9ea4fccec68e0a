package storetest

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// take returns a take of count values with a new id.
func take(count int) store.Take {
	m := marker()
	return store.Take{ID: newID(wire.SequenceClass), Count: count, At: m.At, ExpireAt: m.ExpireAt}
}

// next is a call that must succeed at once.
func next(t testing.TB, s store.Store, sequence string, takes ...store.Take) []store.Given {
	t.Helper()
	given, err := s.NextValues(t.Context(), sequence, takes)
	if err != nil || len(given) != len(takes) {
		t.Fatalf("NextValues of %q with %d takes: got %d answers, %v", sequence, len(takes), len(given), err)
	}
	return given
}

// nextRetrying repeats a call after any error, as a caller may.
func nextRetrying(ctx context.Context, s store.Store, sequence string, takes ...store.Take) (given []store.Given, err error) {
	for range 100 {
		if given, err = s.NextValues(ctx, sequence, takes); err == nil || ctx.Err() != nil {
			break
		}
	}
	return given, err
}

func sequenceState(t testing.TB, s store.Store, sequence string) store.SequenceState {
	t.Helper()
	state, err := s.Sequence(t.Context(), sequence)
	if err != nil {
		t.Fatalf("Sequence(%q): %v", sequence, err)
	}
	return state
}

func testSequenceGivesEachOnce(t *testing.T, su *suite) {
	s := su.open(t)
	if got := sequenceState(t, s, "a"); got.Exists() || got.Last != 0 {
		t.Errorf("a new sequence: got %+v, want none", got)
	}
	for step, tc := range []struct {
		counts []int
		want   []store.Given
	}{
		{[]int{1}, []store.Given{{First: 1, Count: 1}}},
		{[]int{1}, []store.Given{{First: 2, Count: 1}}},
		{[]int{5, 1, 2}, []store.Given{{First: 3, Count: 5}, {First: 8, Count: 1}, {First: 9, Count: 2}}},
		{[]int{1000}, []store.Given{{First: 11, Count: 1000}}},
		{[]int{1}, []store.Given{{First: 1011, Count: 1}}},
	} {
		var takes []store.Take
		for _, count := range tc.counts {
			takes = append(takes, take(count))
		}
		if got := next(t, s, "a", takes...); !slices.Equal(got, tc.want) {
			t.Errorf("step %d: got %v, want %v", step, got, tc.want)
		}
	}
	if got := sequenceState(t, s, "a"); !got.Exists() || got.Last != 1011 {
		t.Errorf("got the state %+v, want the last value 1011", got)
	}
	for _, name := range oddNames {
		if name == "a" {
			continue
		}
		if got := next(t, s, name, take(1)); got[0].First != 1 {
			t.Errorf("sequence %q begins at %d, want 1", name, got[0].First)
		}
	}
	grow(t, s, store.Growth{Counter: "a", Shards: 1})
	mustFold(t, s, commit(nil, add("a", 0, 7)))
	if got := next(t, s, "a", take(1)); got[0].First != 1012 {
		t.Errorf("beside a counter of the same name: got %d, want 1012", got[0].First)
	}
}

func testSequenceRemembersIDs(t *testing.T, su *suite) {
	s := su.open(t)
	first, second := take(3), take(1)
	want := next(t, s, "a", first, second)
	for range 2 {
		if got := next(t, s, "a", second, first); got[0] != want[1] || got[1] != want[0] {
			t.Errorf("a repeat in another order: got %v, want %v reversed", got, want)
		}
	}
	fresh, other := take(2), first
	other.Count = 9
	if got := next(t, s, "a", fresh, other); got[0] != (store.Given{First: 5, Count: 2}) || got[1] != want[0] {
		t.Errorf("a new id beside a repeat with another count: got %v, want values from 5 and %v", got, want[0])
	}
	if got := next(t, s, "a", take(1)); got[0].First != 7 {
		t.Errorf("after the repeats: got %d, want 7", got[0].First)
	}
	found := applied(t, s, first.ID, take(1).ID)
	if len(found) != 1 || found[0].ID != first.ID || found[0].At.Before(first.At) && found[0].ExpireAt.Before(first.ExpireAt) {
		t.Errorf("its marker: got %+v, want one that is kept until %s", found, first.ExpireAt)
	}
}

func testSequenceTakesLimits(t *testing.T, su *suite) {
	s := su.open(t)
	takes := make([]store.Take, store.MaxTakes)
	for i := range takes {
		takes[i] = take(i + 1)
	}
	at := int64(1)
	for i, g := range next(t, s, long("x"), takes...) {
		if g.First != at || g.Count != i+1 {
			t.Fatalf("take %d: got %v, want %d values from %d", i, g, i+1, at)
		}
		at += int64(g.Count)
	}
	wrong := take(1)
	wrong.ID = newID(wire.ResetClass)
	for name, takes := range map[string][]store.Take{"no takes": nil, "an id of another class": {wrong}, "a count of 0": {take(0)}} {
		if got, err := s.NextValues(t.Context(), "a", takes); err == nil {
			t.Errorf("%s: got %v, want an error", name, got)
		}
	}
	if got := next(t, s, "a", take(1)); got[0].First != 1 {
		t.Errorf("after refused calls: got %d, want 1", got[0].First)
	}
}

// A take that asks for more values than are left gets none, and the rest stays.
func testSequenceEnds(t *testing.T, su *suite) {
	if math.MaxInt < math.MaxInt64 {
		t.Skip("a count does not reach the end of a sequence")
	}
	s := su.open(t)
	next(t, s, "a", take(math.MaxInt-4))
	over := take(5)
	got := next(t, s, "a", take(1), over, take(2))
	if got[0].First != math.MaxInt64-3 || got[1] != (store.Given{}) || got[2] != (store.Given{First: math.MaxInt64 - 2, Count: 2}) {
		t.Errorf("4 values before the end: got %v, want one value, none, and two values", got)
	}
	if len(applied(t, s, over.ID)) != 0 {
		t.Error("a take without values has a marker")
	}
	over.Count = 1
	if got := next(t, s, "a", over); got[0] != (store.Given{First: math.MaxInt64, Count: 1}) {
		t.Errorf("the last value: got %v", got)
	}
	if got := next(t, s, "a", take(1)); got[0] != (store.Given{}) {
		t.Errorf("after the last value: got %v, want none", got)
	}
}

func testSequenceIsDeleted(t *testing.T, su *suite) {
	s := su.open(t)
	remove := func(name string) store.SequenceState {
		t.Helper()
		before, err := s.DeleteSequence(t.Context(), name)
		if err != nil {
			t.Fatalf("DeleteSequence(%q): %v", name, err)
		}
		return before
	}
	if got := remove("nobody's"); got.Exists() {
		t.Errorf("of a sequence that nobody used: got %+v", got)
	}
	old := take(4)
	next(t, s, "a", old)
	if got := remove("a"); !got.Exists() || got.Last != 4 {
		t.Errorf("first delete: got %+v, want the last value 4", got)
	}
	if got := remove("a"); got.Exists() || got.Last != 4 {
		t.Errorf("second delete: got %+v, want that it was deleted, with the last value 4", got)
	}
	if got := next(t, s, "a", old); got[0] != (store.Given{First: 1, Count: 4}) {
		t.Errorf("a repeat after the delete: got %v, want 4 values from 1", got)
	}
	if got := sequenceState(t, s, "a"); got.Exists() {
		t.Errorf("a repeat ended the deletion: %+v", got)
	}
	if got := next(t, s, "a", take(1)); got[0].First != 5 {
		t.Errorf("a take after the delete: got %d, want 5", got[0].First)
	}
	if got := sequenceState(t, s, "a"); !got.Exists() || got.Last != 5 {
		t.Errorf("after that take: got %+v, want that it exists", got)
	}
}

// Many callers use few sequences at once. Each value is given once, and later calls get higher values.
func testSequencesBesideEachOther(t *testing.T, su *suite) {
	s := su.open(t)
	names := []string{"a", "b", "c"}
	var mu sync.Mutex
	got := make(map[string][]int64)
	var wg sync.WaitGroup
	for caller := range 6 {
		wg.Go(func() {
			last := make(map[string]int64)
			for round := range su.rounds / 6 {
				name := names[(caller+round)%len(names)]
				given, err := nextRetrying(t.Context(), s, name, take(1), take(2))
				if err != nil {
					t.Errorf("NextValues: %v", err)
					return
				}
				if given[0].First <= last[name] {
					t.Errorf("sequence %q gave %d after %d", name, given[0].First, last[name])
				}
				last[name] = given[1].First + 1
				mu.Lock()
				got[name] = append(got[name], given[0].First, given[1].First, given[1].First+1)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for name, values := range got {
		slices.Sort(values)
		for i, v := range values {
			if v != int64(i+1) {
				t.Fatalf("sequence %q: value %d of the sorted ones is %d, want %d", name, i, v, i+1)
			}
		}
	}
}

func testSequenceMarkersGoAtTheirTime(t *testing.T, su *suite) {
	if su.expire == nil {
		t.Skip("markers are not removed by time")
	}
	s := su.open(t)
	now := check(t, s).At
	past, ahead := take(1), take(1)
	past.At, past.ExpireAt = now.Add(-day), now.Add(-time.Second)
	ahead.At, ahead.ExpireAt = now.Add(-day), now.Add(time.Hour)
	next(t, s, "a", past, ahead)
	su.expire(t, s)
	if got := next(t, s, "a", past, ahead); got[0].First != 3 || got[1].First != 2 {
		t.Errorf("after one of two markers was removed: got %v, want the new value 3 and the old value 2", got)
	}
}

func testReopenedSequences(t *testing.T, su *suite) {
	if su.reopen == nil {
		t.Skip("the store is not declared Durable")
	}
	s := su.open(t)
	one := take(3)
	next(t, s, "a", one)
	next(t, s, "b", take(1))
	if _, err := s.DeleteSequence(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s = su.reopen(t, s)
		if got := next(t, s, "a", one); got[0] != (store.Given{First: 1, Count: 3}) {
			t.Errorf("a repeat after opening again: got %v, want 3 values from 1", got)
		}
		if got := sequenceState(t, s, "b"); got.Exists() || got.Last != 1 {
			t.Errorf("a deleted sequence: got %+v, want the last value 1", got)
		}
	}
	if got := next(t, s, "a", take(1)); got[0].First != 4 {
		t.Errorf("a new take after opening again: got %d, want 4", got[0].First)
	}
}
