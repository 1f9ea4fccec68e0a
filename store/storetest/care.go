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
