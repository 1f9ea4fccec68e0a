package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/wire"
)

func letter(key string) aggregator.Dead {
	now := time.Now().Truncate(time.Microsecond)
	return aggregator.Dead{
		Key: key, Payload: []byte("payload of " + key + "\x00\xff"), Source: "0123", Time: now.Add(-time.Hour),
		Reason: "beyond the horizon: é", Maybe: true, At: now,
	}
}

func dead(t testing.TB, s Store, after string, limit int) []aggregator.Dead {
	t.Helper()
	got, err := s.Dead(t.Context(), after, limit)
	if err != nil {
		t.Fatalf("Dead(%q, %d): %v", after, limit, err)
	}
	return got
}

func bury(t testing.TB, s Store, letters ...aggregator.Dead) {
	t.Helper()
	if err := s.Bury(t.Context(), letters); err != nil {
		t.Fatalf("Bury: %v", err)
	}
}

func testBuryIsIdempotent(t *testing.T, su *suite) {
	s := su.open(t)
	if got := dead(t, s, "", 10); len(got) != 0 {
		t.Errorf("an empty store has dead letters: %v", got)
	}
	a, b := letter("a"), letter("b")
	b.Maybe, b.Payload, b.Source = false, slices.Repeat([]byte{0, 1, 0xff}, 300_000), ""
	bury(t, s, b)
	bury(t, s, a, b)
	bury(t, s, a)
	bury(t, s)
	// The first and the last time that a batch may have, and none at all.
	c, d := letter("c"), letter("d")
	c.Time, c.At = time.UnixMicro(0), wire.MaxTime.Add(-time.Microsecond)
	d.Time = time.Time{}
	bury(t, s, c, d)
	if diff := cmp.Diff([]aggregator.Dead{a, b, c, d}, dead(t, s, "", 10), sameTimes, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

func testDeadPages(t *testing.T, su *suite) {
	s := su.open(t)
	var want []string
	for i := range 11 {
		want = append(want, fmt.Sprintf("%064x", i*i))
		bury(t, s, letter(want[i]))
	}
	var got []string
	after := ""
	for page := dead(t, s, after, 4); len(page) > 0; page = dead(t, s, after, 4) {
		if len(page) > 4 {
			t.Fatalf("a page of %d, limit 4", len(page))
		}
		for _, d := range page {
			got = append(got, d.Key)
		}
		after = got[len(got)-1]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys of all pages (-want +got):\n%s", diff)
	}
}

// An aggregator discards what it has counted, maybe after another one did, and looks for
// its letters behind all others.
func testDiscardRemoves(t *testing.T, su *suite) {
	s := su.open(t)
	keys := []string{fmt.Sprintf("%032x", 1), "fff", "newer:01:a", "newer:01:b", "newer:02:a"}
	for _, key := range keys {
		d := letter(key)
		d.Payload = slices.Repeat([]byte{0, 0xff}, wire.MaxBatch/2)
		bury(t, s, d)
	}
	discard := func(keys ...string) {
		t.Helper()
		if err := s.Discard(t.Context(), keys); err != nil {
			t.Fatalf("Discard(%q): %v", keys, err)
		}
	}
	discard()
	discard("nobody's")
	for range 2 {
		discard("newer:01:b", "fff")
		var got []string
		for _, d := range dead(t, s, "newer:", 10) {
			got = append(got, d.Key)
		}
		if diff := cmp.Diff([]string{"newer:01:a", "newer:02:a"}, got); diff != "" {
			t.Errorf("keys after a discard (-want +got):\n%s", diff)
		}
	}
	if got := dead(t, s, "", 10); len(got) != 3 || got[0].Key != keys[0] {
		t.Errorf("%d letters are left, want 3 beginning with %s", len(got), keys[0])
	}
	bury(t, s, letter("newer:01:b")) // set aside again
	if got := dead(t, s, "newer:01:a", 1); len(got) != 1 || got[0].Key != "newer:01:b" {
		t.Errorf("after a discard and a bury: %v, want newer:01:b", got)
	}
}

// Some calls count a letter while others discard it: all of them, and later ones, return one fate.
func testFatesAreDecidedOnce(t *testing.T, su *suite) {
	s := su.open(t)
	latest, settings := time.Now().Add(time.Hour), check(t, s).Settings
	keys := []string{"a", "newer:01:b", "c"}
	told := make([]aggregator.Fate, 2*4)
	for _, key := range keys[:2] {
		var all sync.WaitGroup
		for i := range told {
			all.Go(func() {
				want := []aggregator.Fate{aggregator.ToCount, aggregator.Discarded}[i%2]
				for tries := 0; ; tries++ { // a commit may be given up because of others
					var err error
					if told[i], err = aggregator.Decide(t.Context(), s, key, want, latest, settings); err == nil {
						return
					}
					if tries == 20 {
						t.Errorf("%s: not decided: %v", key, err)
						return
					}
				}
			})
		}
		all.Wait()
		for _, fate := range told {
			if fate != told[0] || fate == 0 {
				t.Errorf("%s: fates %v, want one", key, told)
				break
			}
		}
		fates, err := aggregator.Fates(t.Context(), s, []string{"c", key})
		if diff := cmp.Diff([]aggregator.Fate{0, told[0]}, fates); err != nil || diff != "" {
			t.Errorf("%s: %v, fates (-want +got):\n%s", key, err, diff)
		}
	}
}

// A person names letters by their keys, some of which are gone.
func testDeadByKeyFinds(t *testing.T, su *suite) {
	s := su.open(t)
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprintf("%032x", i*i))
		bury(t, s, letter(keys[i]))
	}
	find := func(keys ...string) []aggregator.Dead {
		t.Helper()
		found, err := s.DeadByKey(t.Context(), keys)
		if err != nil {
			t.Fatalf("DeadByKey(%q): %v", keys, err)
		}
		return found
	}
	if got := find(); len(got) != 0 {
		t.Errorf("DeadByKey of nothing: %v", got)
	}
	var got []string
	for _, d := range find(slices.Concat([]string{"nobody's"}, keys[3:], []string{keys[0], "newer:"})...) {
		got = append(got, d.Key)
	}
	if diff := cmp.Diff(append(slices.Clone(keys[3:]), keys[0]), got); diff != "" {
		t.Errorf("keys found (-want +got):\n%s", diff)
	}
	want := dead(t, s, "", 1)
	if diff := cmp.Diff(want, find(want[0].Key), sameTimes); diff != "" {
		t.Errorf("DeadByKey differs from Dead (-Dead +DeadByKey):\n%s", diff)
	}
}

func testAnnounceReplaces(t *testing.T, su *suite) {
	s := su.open(t)
	now := time.Now().Truncate(time.Microsecond)
	a := aggregator.Worker{ID: "host-1/a:b", Lag: 1500 * time.Millisecond, LastCommit: now, Expires: now.Add(time.Minute), Entries: 1 << 40, Commits: 7, Settings: 3}
	b := aggregator.Worker{ID: "b", Expires: now.Add(-time.Hour)}
	for _, w := range []aggregator.Worker{a, b} {
		if err := s.Announce(t.Context(), w); err != nil {
			t.Fatalf("Announce: %v", err)
		}
	}
	a.Lag, a.Stalled, a.Entries = 3*time.Microsecond, true, a.Entries+1
	if err := s.Announce(t.Context(), a); err != nil {
		t.Fatalf("Announce: %v", err)
	}
	got, err := s.Workers(t.Context())
	if err != nil {
		t.Fatalf("Workers: %v", err)
	}
	slices.SortFunc(got, func(x, y reader.Worker) int { return strings.Compare(x.ID, y.ID) })
	want := []reader.Worker{reader.Worker(b), reader.Worker(a)}
	if diff := cmp.Diff(want, got, sameTimes); diff != "" {
		t.Errorf("Workers (-want +got):\n%s", diff)
	}
	if len(got) == 2 && !got[0].LastCommit.IsZero() {
		t.Errorf("a worker that never committed: last commit %s, want zero", got[0].LastCommit)
	}
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
		// The horizon is judged by it. Zero says that it is the machine's own clock.
		if after := readTime(t, s); !at.IsZero() && (at.Before(before) || at.After(after)) {
			t.Errorf("Check says that it is %s, between reads as of %s and %s", at, before, after)
		}
		mustFold(t, s, commit(one(marker()), add("a", 0, 1)))
	}
}

// readTime is the moment of a read that is made now.
func readTime(t testing.TB, s Store) time.Time {
	t.Helper()
	v := s.View()
	defer v.Close()
	if _, err := v.Lookup(t.Context(), []reader.Key{{Counter: "a", Shard: 0}}); err != nil {
		t.Fatalf("Lookup: %v", err)
	}
	return v.ReadTime()
}

// calls is every call that takes a context, with arguments that a healthy store takes at about m.At.
func calls(s Store, m aggregator.Marker) map[string]func(ctx context.Context) error {
	first := func(_ any, err error) error { return err }
	return map[string]func(ctx context.Context) error{
		"Fold":          func(ctx context.Context) error { return first(s.Fold(ctx, commit(one(m), add("a", 0, 1)))) },
		"Applied":       func(ctx context.Context) error { return first(s.Applied(ctx, []wire.PartID{m.ID})) },
		"Shards":        func(ctx context.Context) error { return first(s.Shards(ctx, []string{"a"})) },
		"Raise":         func(ctx context.Context) error { return s.Raise(ctx, []aggregator.Raise{{Counter: "a", Shards: 1}}) },
		"Bury":          func(ctx context.Context) error { return s.Bury(ctx, []aggregator.Dead{letter("a")}) },
		"Announce":      func(ctx context.Context) error { return s.Announce(ctx, aggregator.Worker{ID: "a"}) },
		"Check":         func(ctx context.Context) error { _, err := s.Check(ctx); return err },
		"SetWindow":     func(ctx context.Context) error { return first(s.SetWindow(ctx, time.Hour)) },
		"Workers":       func(ctx context.Context) error { return first(s.Workers(ctx)) },
		"Discard":       func(ctx context.Context) error { return s.Discard(ctx, []string{"a"}) },
		"Dead":          func(ctx context.Context) error { return first(s.Dead(ctx, "", 1)) },
		"ByKey":         func(ctx context.Context) error { return first(s.DeadByKey(ctx, []string{"a"})) },
		"Survey":        func(ctx context.Context) error { return first(s.ShardPage(ctx, "", "", 10)) },
		"ShardsOf":      func(ctx context.Context) error { return first(s.ShardsOf(ctx, "a")) },
		"RaiseCounter":  func(ctx context.Context) error { return first(s.RaiseCounter(ctx, "b", 1)) },
		"SweepCounters": func(ctx context.Context) error { return first(s.SweepCounters(ctx, time.Hour)) },
		"ResetCounter": func(ctx context.Context) error {
			return first(s.ResetCounter(ctx, admin.Reset{ID: newID(), Counter: "b", Look: admin.Sum{At: m.At}, At: m.At, ExpireAt: m.ExpireAt}))
		},
		"Lookup": func(ctx context.Context) error {
			v := s.View()
			defer v.Close()
			return first(v.Lookup(ctx, []reader.Key{{Counter: "a"}}))
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
			t.Errorf("Fold says that nothing was applied (%v), but it was", err)
		}
	}
	marked := len(applied(t, s, m.ID))
	if got := count(t, s, "a", 0); got != int64(marked) {
		t.Errorf("after a cancelled Fold: %d markers and a count of %d, want both or none", marked, got)
	}
	for name, call := range calls(s, m) {
		err := call(t.Context())
		if name == "Fold" && marked == 1 && errors.Is(err, aggregator.ErrMarkerExists) {
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

// After ErrNotApplied nothing is there, and nothing comes later. Folds wait for each other here,
// and some of them not for long.
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
		if errors.Is(err, aggregator.ErrNotApplied) {
			never = append(never, m.ID)
			return
		}
		want++
		if err == nil {
			return
		}
		if _, err := foldRetrying(t.Context(), s, commit(one(m), add("a", 0, 1))); err != nil && !errors.Is(err, aggregator.ErrMarkerExists) {
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
			t.Errorf("Fold says %v, and the marker is there", aggregator.ErrNotApplied)
		}
	}
	if got := count(t, s, "a", 0); got != want {
		t.Errorf("got %d, want %d: one for each fold but the %d that were not applied", got, want, len(never))
	}
}

// A role that still holds a closed store gets errors, not a panic and not an answer.
func testClosedStoreAnswersErrors(t *testing.T, su *suite) {
	s := su.open(t)
	v := s.View()
	lookup(t, v, reader.Key{Counter: "a", Shard: 0})
	if err := s.Close(); err != nil {
		t.Fatalf("Close with an open view: %v", err)
	}
	if _, err := v.Lookup(t.Context(), []reader.Key{{Counter: "a"}}); err == nil {
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
		t.Skip("the store does not say that it is durable")
	}
	s := su.open(t)
	m := marker()
	for round := range 3 {
		raise(t, s, aggregator.Raise{Counter: "a", Shards: round + 2})
		mustFold(t, s, commit(nil, add("a", 0, 1), add("a", round+1, 5)))
		if round == 0 {
			mustFold(t, s, commit(one(m), add("b", 0, wire.MaxSum)))
		}
		mustFold(t, s, commit(one(marker()), add("b", 0, wire.MaxSum)))
		bury(t, s, letter(fmt.Sprint(round)))

		s = su.reopen(t, s)
		if got, want := sum(t, s, "a", 4), int64(6*(round+1)); got != want {
			t.Errorf("reopened %d times: got %d, want %d", round+1, got, want)
		}
		if got := shards(t, s, "a"); got[0] != round+2 {
			t.Errorf("reopened %d times: record names %d shards, want %d", round+1, got[0], round+2)
		}
		if diff := cmp.Diff(one(m), applied(t, s, m.ID, newID()), sameMarkers); diff != "" {
			t.Errorf("reopened %d times: Applied (-want +got):\n%s", round+1, diff)
		}
		if _, err := s.Fold(t.Context(), commit(one(m), add("b", 0, 1))); !errors.Is(err, aggregator.ErrMarkerExists) {
			t.Errorf("reopened %d times: the old marker got %v, want ErrMarkerExists", round+1, err)
		}
		if got := dead(t, s, "", 10); len(got) != round+1 {
			t.Errorf("reopened %d times: %d dead letters, want %d", round+1, len(got), round+1)
		}
		v := s.View()
		if got := lookup(t, v, reader.Key{Counter: "b", Shard: 0})[0]; !got.Overflow {
			t.Errorf("reopened %d times: got %+v, want an overflow", round+1, got)
		}
		v.Close()
	}
}
