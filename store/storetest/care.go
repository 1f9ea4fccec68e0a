package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

func testBeatReplaces(t *testing.T, su *suite) {
	s := su.open(t)
	now := time.Now().Truncate(time.Microsecond)
	a := store.Worker{ID: "host-1/a:b", Lag: 1500 * time.Millisecond, LastCommit: now, Expires: now.Add(time.Minute), Entries: 1 << 40, Commits: 7, Settings: 3,
		Increments: 1 << 41, Entities: 9, Duplicates: 2, DeadLetters: 1, Busiest: busiestNames(),
		LastDeadLetter: now.Add(-time.Second), AtLimit: []string{"a b", "é"}, Setup: map[string]string{"shard-rate": "1"}}
	b := store.Worker{ID: "b", Expires: now.Add(-time.Hour)}
	for _, w := range []store.Worker{a, b} {
		if err := s.Beat(t.Context(), w); err != nil {
			t.Fatalf("Announce: %v", err)
		}
	}
	a.Lag, a.Stalled, a.Skew, a.Entries = 3*time.Microsecond, true, time.Hour, a.Entries+1
	if err := s.Beat(t.Context(), a); err != nil {
		t.Fatalf("Announce: %v", err)
	}
	got, err := s.Workers(t.Context())
	if err != nil {
		t.Fatalf("Workers: %v", err)
	}
	slices.SortFunc(got, func(x, y store.Worker) int { return strings.Compare(x.ID, y.ID) })
	want := []store.Worker{b, a}
	if diff := cmp.Diff(want, got, sameTimes); diff != "" {
		t.Errorf("Workers (-want +got):\n%s", diff)
	}
	if len(got) == 2 && (!got[0].LastCommit.IsZero() || !got[0].LastDeadLetter.IsZero()) {
		t.Errorf("a worker that wrote nothing: last commit %s, last dead letter %s, want zero", got[0].LastCommit, got[0].LastDeadLetter)
	}
}

// busiestNames is the largest list that a record may have: 100 names of 500 bytes.
func busiestNames() []store.Busy {
	all := make([]store.Busy, store.MaxBusiest)
	for i := range all {
		all[i] = store.Busy{Counter: fmt.Sprintf("<%03d>é%s", i, strings.Repeat("x", 493)), Rate: float64(i) + 0.25}
	}
	return all
}

func testCheckIsFine(t *testing.T, su *suite) {
	s := su.open(t)
	for range 3 {
		before := readTime(t, s)
		checked, err := s.Check(t.Context())
		at := checked.At
		if err != nil {
			t.Errorf("Check of a new store: %v", err)
		}
		// The deduplication window depends on it. Zero means the machine's own clock.
		if after := readTime(t, s); !at.IsZero() && (at.Before(before) || at.After(after)) {
			t.Errorf("Check returned the time %s, between reads at %s and %s", at, before, after)
		}
		mustFold(t, s, commit(one(marker()), add("a", 0, 1)))
	}
}

// readTime is the moment of a read that is made now.
func readTime(t testing.TB, s store.Store) time.Time {
	t.Helper()
	v := s.View()
	defer v.Close()
	if _, err := v.Lookup(t.Context(), []store.Key{{Counter: "a", Shard: 0}}); err != nil {
		t.Fatalf("Lookup: %v", err)
	}
	return v.ReadTime()
}

// calls returns every call that takes a context. A healthy store accepts their arguments at about m.At.
func calls(s store.Store, m store.Marker) map[string]func(ctx context.Context) error {
	first := func(_ any, err error) error { return err }
	return map[string]func(ctx context.Context) error{
		"Fold":           func(ctx context.Context) error { return first(s.Fold(ctx, commit(one(m), add("a", 0, 1)))) },
		"Applied":        func(ctx context.Context) error { return first(s.Applied(ctx, []wire.PartID{m.ID})) },
		"Shards":         func(ctx context.Context) error { return first(s.Shards(ctx, []string{"a"})) },
		"Grow":           func(ctx context.Context) error { return s.Grow(ctx, []store.Growth{{Counter: "a", Shards: 1}}) },
		"PutDeadLetters": func(ctx context.Context) error { return s.PutDeadLetters(ctx, []store.DeadLetter{letter("a")}) },
		"Announce":       func(ctx context.Context) error { return s.Beat(ctx, store.Worker{ID: "a"}) },
		"Check":          func(ctx context.Context) error { _, err := s.Check(ctx); return err },
		"SetWindow":      func(ctx context.Context) error { return first(s.SetWindow(ctx, time.Hour)) },
		"ChangeRules": func(ctx context.Context) error {
			return first(s.ChangeRules(ctx, store.RuleChange{Pattern: "series:*", Keep: keep}))
		},
		"MoveSeries":  func(ctx context.Context) error { return first(s.MoveSeries(ctx)) },
		"SweepSeries": func(ctx context.Context) error { return s.SweepSeries(ctx) },
		"Series": func(ctx context.Context) error {
			v := s.View()
			defer v.Close()
			return first(v.Series(ctx, []store.Record{{Counter: "a"}}, 0, 1))
		},
		"Workers":  func(ctx context.Context) error { return first(s.Workers(ctx)) },
		"Discard":  func(ctx context.Context) error { return s.DeleteDeadLetters(ctx, []string{"a"}) },
		"Dead":     func(ctx context.Context) error { return first(s.ListDeadLetters(ctx, "", 1)) },
		"ByKey":    func(ctx context.Context) error { return first(s.GetDeadLetters(ctx, []string{"a"})) },
		"Survey":   func(ctx context.Context) error { return first(s.ShardPage(ctx, "", "", 10)) },
		"ShardsOf": func(ctx context.Context) error { return first(s.ShardsOf(ctx, "a")) },
		"Ranges":   func(ctx context.Context) error { return first(s.Ranges(ctx, 5)) },
		"SwapRanges": func(ctx context.Context) error {
			if err := s.SwapRanges(ctx, nil, []store.IndexRange{{Index: 5, ID: 1}}); !errors.Is(err, store.ErrNoIndex) {
				return err
			}
			return nil
		},
		"Ungrouped":   func(ctx context.Context) error { return first(s.Ungrouped(ctx, sites(), &store.IndexRange{}, "", 1)) },
		"DropGrouped": func(ctx context.Context) error { return first(s.DropGrouped(ctx, sites(), &store.IndexRange{}, "", 1)) },
		"RemaindersOf": func(ctx context.Context) error {
			return first(s.RemaindersOf(ctx, &store.IndexRange{Index: 5, ID: 1}, "", 1))
		},
		"GrowCounter":   func(ctx context.Context) error { return first(s.GrowCounter(ctx, "b", 1)) },
		"SweepCounters": func(ctx context.Context) error { return first(s.SweepCounters(ctx, time.Hour)) },
		"ResetCounter": func(ctx context.Context) error {
			return first(s.ResetCounter(ctx, store.ResetRequest{ID: newID(wire.ResetClass), Counter: "b", Look: store.Sum{At: m.At}, At: m.At, ExpireAt: m.ExpireAt}))
		},
		"NextValues": func(ctx context.Context) error {
			return first(s.NextValues(ctx, "a", []store.Take{{ID: newID(wire.SequenceClass), Count: 1, At: m.At, ExpireAt: m.ExpireAt}}))
		},
		"Sequence":       func(ctx context.Context) error { return first(s.Sequence(ctx, "a")) },
		"DeleteSequence": func(ctx context.Context) error { return first(s.DeleteSequence(ctx, "a")) },
		"Lookup": func(ctx context.Context) error {
			v := s.View()
			defer v.Close()
			return first(v.Lookup(ctx, []store.Key{{Counter: "a"}}))
		},
		"List": func(ctx context.Context) error {
			v := s.View()
			defer v.Close()
			return first(v.List(ctx, "", "", 1))
		},
	}
}

func testCancelledContext(t *testing.T, su *suite) {
	s := su.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := marker()
	m.At = readTime(t, s)
	for name, call := range calls(s, m) {
		err := call(ctx)
		if err == nil {
			t.Errorf("%s with a context that has ended: got no error", name)
		}
		if name == "Fold" && certain(err) && len(applied(t, s, m.ID)) > 0 {
			t.Errorf("Fold returned that nothing was applied (%v), but it was applied", err)
		}
	}
	marked := len(applied(t, s, m.ID))
	if got := count(t, s, "a", 0); got != int64(marked) {
		t.Errorf("after a cancelled Fold: %d markers and a count of %d, want both or none", marked, got)
	}
	for name, call := range calls(s, m) {
		err := call(t.Context())
		if name == "Fold" && marked == 1 && errors.Is(err, store.ErrMarkerExists) {
			continue
		}
		if err != nil {
			t.Errorf("%s after a call that was cancelled: %v", name, err)
		}
	}
	if got := count(t, s, "a", 0); got != 1 {
		t.Errorf("a cancelled Fold and the same again: got %d, want 1", got)
	}
}

// After ErrNotApplied nothing is there, and nothing appears later. Some of the folds here wait for
// others only briefly.
func testNotAppliedAppliesNothing(t *testing.T, su *suite) {
	s := su.open(t)
	var mu sync.Mutex
	var never []wire.PartID
	want := int64(0)
	try := func(ctx context.Context) {
		m := marker()
		_, err := s.Fold(ctx, commit(one(m), add("a", 0, 1)))
		mu.Lock()
		defer mu.Unlock()
		if errors.Is(err, store.ErrNotApplied) {
			never = append(never, m.ID)
			return
		}
		want++
		if err == nil {
			return
		}
		if _, err := foldRetrying(t.Context(), s, commit(one(m), add("a", 0, 1))); err != nil && !errors.Is(err, store.ErrMarkerExists) {
			t.Errorf("Fold after an unknown outcome: %v", err)
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range su.rounds / 2 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%10)*100*time.Microsecond)
				try(ctx)
				cancel()
			}
		})
	}
	wg.Wait()
	for _, id := range never {
		if len(applied(t, s, id)) > 0 {
			t.Errorf("Fold returned %v, and the marker exists", store.ErrNotApplied)
		}
	}
	if got := count(t, s, "a", 0); got != want {
		t.Errorf("got %d, want %d: one for each fold except the %d that were not applied", got, want, len(never))
	}
}

// A role that still uses a closed store gets errors, neither a panic nor an answer.
func testClosedStoreAnswersErrors(t *testing.T, su *suite) {
	s := su.open(t)
	v := s.View()
	lookup(t, v, store.Key{Counter: "a", Shard: 0})
	if err := s.Close(); err != nil {
		t.Fatalf("Close with an open view: %v", err)
	}
	if _, err := v.Lookup(t.Context(), []store.Key{{Counter: "a"}}); err == nil {
		t.Errorf("Lookup in a view of a closed store: got no error")
	}
	v.Close()
	for name, call := range calls(s, marker()) {
		if err := call(t.Context()); err == nil {
			t.Errorf("%s on a closed store: got no error", name)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

func testReopen(t *testing.T, su *suite) {
	if su.reopen == nil {
		t.Skip("the store is not declared Durable")
	}
	s := su.open(t)
	m := marker()
	beyond := of(0)
	for round := range 3 {
		grow(t, s, store.Growth{Counter: "a", Shards: round + 2})
		mustFold(t, s, commit(nil, add("a", 0, 1), add("a", round+1, 5)))
		if round == 0 {
			mustFold(t, s, commit(one(m), add("b", 0, wire.MaxSum)))
		}
		mustFold(t, s, commit(one(marker()), add("b", 0, wire.MaxSum)))
		beyond = beyond.Add(of(wire.MaxSum))
		put(t, s, letter(fmt.Sprint(round)))

		s = su.reopen(t, s)
		if got, want := sum(t, s, "a", 4), int64(6*(round+1)); got != want {
			t.Errorf("reopened %d times: got %d, want %d", round+1, got, want)
		}
		if got := shards(t, s, "a"); got[0] != round+2 {
			t.Errorf("reopened %d times: record names %d shards, want %d", round+1, got[0], round+2)
		}
		if diff := cmp.Diff(one(m), applied(t, s, m.ID, newID(wire.AnonymousClass)), sameMarkers); diff != "" {
			t.Errorf("reopened %d times: Applied (-want +got):\n%s", round+1, diff)
		}
		if _, err := s.Fold(t.Context(), commit(one(m), add("b", 0, 1))); !errors.Is(err, store.ErrMarkerExists) {
			t.Errorf("reopened %d times: the old marker got %v, want ErrMarkerExists", round+1, err)
		}
		if got := dead(t, s, "", 10); len(got) != round+1 {
			t.Errorf("reopened %d times: %d dead letters, want %d", round+1, len(got), round+1)
		}
		v := s.View()
		if got := lookup(t, v, store.Key{Counter: "b", Shard: 0})[0]; got.Count != beyond.Add(of(wire.MaxSum)) {
			t.Errorf("reopened %d times: got %+v, want %d and %d", round+1, got, beyond, wire.MaxSum)
		}
		v.Close()
	}
}
