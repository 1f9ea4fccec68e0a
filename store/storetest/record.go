package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

func testAppliedFindsMarkers(t *testing.T, su *suite) {
	s := su.open(t)
	base := time.Now().Add(200 * time.Hour).Truncate(time.Second)
	var want []store.Marker
	for i, expire := range []time.Duration{0, time.Microsecond, 999_999 * time.Microsecond, 90 * time.Hour} {
		m := marker()
		m.At, m.ExpireAt = base.Add(expire-200*time.Hour), base.Add(expire)
		switch i {
		case 0:
			m.Fingerprint, m.Fold = 0, 0
		case 1:
			m.Fingerprint, m.Fold = ^wire.Fingerprint(0), ^uint64(0)
		}
		want = append(want, m)
	}
	mustFold(t, s, commit(slices.Clone(want[:2]), add("a", 0, 1)))
	mustFold(t, s, commit(slices.Clone(want[2:])))
	slices.SortFunc(want, func(a, b store.Marker) int { return slices.Compare(a.ID[:], b.ID[:]) })
	got := applied(t, s, newID(wire.AnonymousClass), want[3].ID, want[0].ID, newID(wire.AnonymousClass), want[2].ID, want[1].ID)
	if diff := cmp.Diff(want, got, sameMarkers); diff != "" {
		t.Errorf("Applied (-want +got):\n%s", diff)
	}
	if got := applied(t, s); len(got) != 0 {
		t.Errorf("Applied of nothing found %v", got)
	}
}

func testGrowNeverLowers(t *testing.T, su *suite) {
	s := su.open(t)
	if got := shards(t, s, "a", "b"); !slices.Equal(got, []int{0, 0}) {
		t.Errorf("counters without records: got %v, want 0 and 0", got)
	}
	for _, step := range []struct{ shards, want int }{{1, 1}, {1, 1}, {20, 20}, {5, 20}, {20, 20}, {999, 999}, {1, 999}} {
		grow(t, s, store.Growth{Counter: "a", Shards: step.shards})
		if got := shards(t, s, "b", "a"); !slices.Equal(got, []int{0, step.want}) {
			t.Errorf("after Grow to %d: got %v, want 0 and %d", step.shards, got, step.want)
		}
	}
	mustFold(t, s, commit(nil, add("b", 0, 7)))
	if got := shards(t, s, "b"); got[0] != 0 {
		t.Errorf("a fold made a record of %d shards, want none", got[0])
	}
	if got := shards(t, s); len(got) != 0 {
		t.Errorf("Shards of nothing: got %v", got)
	}
}

// A fold with growths does all of it or nothing, and lowers no record.
func testFoldGrows(t *testing.T, su *suite) {
	s := su.open(t)
	if !s.Limits().GrowsInFold {
		t.Skip("the store does not grow counters in folds")
	}
	growths := func(markers []store.Marker, a, b int) *store.Commit {
		c := commit(markers, add("a", 0, 1), add("b", 0, 10))
		c.Growths = []store.Growth{{Counter: "a", Shards: a}, {Counter: "b", Shards: b}}
		return c
	}
	m := marker()
	for _, step := range []struct {
		commit *store.Commit
		want   error
		shards []int
		total  int64
	}{
		{growths(nil, 1, 3), nil, []int{1, 3}, 11},
		{growths(one(m), 2, 2), nil, []int{2, 3}, 22},
		{growths(one(m), 999, 999), store.ErrMarkerExists, []int{2, 3}, 22},
		{growths(one(marker()), 1, 1), nil, []int{2, 3}, 33},
	} {
		if _, err := s.Fold(t.Context(), step.commit); !errors.Is(err, step.want) {
			t.Errorf("Fold with growths %v: got error %v, want %v", step.commit.Growths, err, step.want)
		}
		if got := shards(t, s, "a", "b"); !slices.Equal(got, step.shards) {
			t.Errorf("after Fold with growths %v: records name %v shards, want %v", step.commit.Growths, got, step.shards)
		}
		if got := count(t, s, "a", 0) + count(t, s, "b", 0); got != step.total {
			t.Errorf("after Fold with growths %v: got %d, want %d", step.commit.Growths, got, step.total)
		}
	}
	want := []store.Record{{Counter: "a", Shards: 2}, {Counter: "b", Shards: 3}}
	if diff := cmp.Diff(want, list(t, s, "", "", 10)); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
}

func testListOrder(t *testing.T, su *suite) {
	s := su.open(t)
	want := make([]store.Record, 0, len(oddNames))
	for i, name := range oddNames {
		grow(t, s, store.Growth{Counter: name, Shards: i + 1})
		want = append(want, store.Record{Counter: name, Shards: i + 1})
	}
	mustFold(t, s, commit(nil, add("no record", 0, 1)))
	slices.SortFunc(want, func(a, b store.Record) int { return slices.Compare([]byte(a.Counter), []byte(b.Counter)) })
	for _, prefix := range append([]string{"", "a/", "a/..", "https://", "\U0010ffff", "zzz", "\xff"}, oddNames...) {
		var with []store.Record
		for _, r := range want {
			if len(r.Counter) >= len(prefix) && r.Counter[:len(prefix)] == prefix {
				with = append(with, r)
			}
		}
		if diff := cmp.Diff(with, list(t, s, prefix, "", 1000), equateEmpty); diff != "" {
			t.Errorf("List of prefix %q (-want +got):\n%s", prefix, diff)
		}
	}
	for i, r := range want {
		rest := want[i+1:]
		for limit := range 3 {
			if diff := cmp.Diff(rest[:min(limit, len(rest))], list(t, s, "", r.Counter, limit), equateEmpty); diff != "" {
				t.Errorf("List of %d after %q (-want +got):\n%s", limit, r.Counter, diff)
			}
		}
	}
	for _, q := range []struct {
		prefix, after string
		want          int
	}{{"a/", "a", 3}, {"a/", "a/../b", 2}, {"a/", "b", 0}, {"", "\U0010ffff", 0}} {
		if got := list(t, s, q.prefix, q.after, 100); len(got) != q.want {
			t.Errorf("List of %q after %q: got %v, want %d", q.prefix, q.after, got, q.want)
		}
	}
}

func list(t testing.TB, s store.Store, prefix, after string, limit int) []store.Record {
	t.Helper()
	v := s.View()
	defer v.Close()
	got, err := v.List(t.Context(), prefix, after, limit)
	if err != nil {
		t.Fatalf("List(%q, %q, %d): %v", prefix, after, limit, err)
	}
	return got
}
