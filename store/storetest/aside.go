package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Asides are found under their tails, are written again without effect, and stay when their letter is
// gone.
func testAsidesAreFoundByTail(t *testing.T, su *suite) {
	s := su.open(t)
	hash := wire.SealHash{1}
	tails := []wire.PartID{hash.Tail(0), hash.Tail(1), hash.Tail(2)}
	a, b := letter("a"), letter("b")
	parts := []store.AsidePart{
		{ID: wire.IncrementID("c", "x"), Fingerprint: 1<<63 + 1},
		{ID: wire.KeyID("", "k", 1), Fingerprint: 2},
	}
	aside := func(tail wire.PartID, of store.DeadLetter, parts ...store.AsidePart) store.Aside {
		return store.Aside{Tail: tail, Letter: of.Key, Parts: parts, At: of.At, ExpireAt: of.At.Add(store.MaxWindow)}
	}
	of := []store.Aside{aside(tails[0], a, parts...), aside(tails[1], a, parts[0]), aside(tails[0], b)}
	a.Asides, b.Asides = of[:2], of[2:]
	put(t, s, a, b)
	put(t, s, a)
	found := func(tails ...wire.PartID) []store.Aside {
		t.Helper()
		got, err := s.Asides(t.Context(), tails)
		if err != nil {
			t.Fatalf("Asides: %v", err)
		}
		slices.SortFunc(got, func(a, b store.Aside) int {
			return strings.Compare(a.Tail.String()+a.Letter, b.Tail.String()+b.Letter)
		})
		return got
	}
	same := cmpopts.IgnoreFields(store.Aside{}, "At", "ExpireAt") // a store keeps one of them
	want := []store.Aside{of[0], of[2], of[1]}
	slices.SortFunc(want, func(a, b store.Aside) int {
		return strings.Compare(a.Tail.String()+a.Letter, b.Tail.String()+b.Letter)
	})
	if diff := cmp.Diff(want, found(tails...), same); diff != "" {
		t.Errorf("of three tails (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]store.Aside{of[1]}, found(tails[1]), same); diff != "" {
		t.Errorf("of one tail (-want +got):\n%s", diff)
	}
	if got := found(tails[2]); len(got) != 0 {
		t.Errorf("of a tail without any: %+v", got)
	}
	if got := found(); len(got) != 0 {
		t.Errorf("of no tail: %+v", got)
	}
	if err := s.DeleteDeadLetters(t.Context(), []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, found(tails...), same); diff != "" {
		t.Errorf("without the letters (-want +got):\n%s", diff)
	}
	// No look-up takes one for a marker.
	if markers, err := s.Applied(t.Context(), tails); err != nil || len(markers) != 0 {
		t.Errorf("markers of these tails: %v, %v", markers, err)
	}
}
