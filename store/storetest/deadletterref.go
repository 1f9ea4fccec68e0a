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

// DeadLetterRefs are found under their completions, are written again without effect, and stay when their letter is
// gone.
func testDeadLetterRefsAreFoundByCompletion(t *testing.T, su *suite) {
	s := su.open(t)
	hash := wire.FlushHash{1}
	completions := []wire.PartID{hash.Completion(0), hash.Completion(1), hash.Completion(2)}
	a, b := letter("a"), letter("b")
	parts := []store.DeadLetterPart{
		{ID: wire.IncrementID("c", "x"), Fingerprint: 1<<63 + 1},
		{ID: wire.KeyID("", "k", 1), Fingerprint: 2},
	}
	refs := func(completion wire.PartID, of store.DeadLetter, parts ...store.DeadLetterPart) store.DeadLetterRef {
		return store.DeadLetterRef{Completion: completion, Key: of.Key, Parts: parts, At: of.At, ExpireAt: of.At.Add(store.MaxWindow)}
	}
	of := []store.DeadLetterRef{refs(completions[0], a, parts...), refs(completions[1], a, parts[0]), refs(completions[0], b)}
	a.DeadLetterRefs, b.DeadLetterRefs = of[:2], of[2:]
	put(t, s, a, b)
	put(t, s, a)
	found := func(completions ...wire.PartID) []store.DeadLetterRef {
		t.Helper()
		got, err := s.DeadLetterRefs(t.Context(), completions)
		if err != nil {
			t.Fatalf("DeadLetterRefs: %v", err)
		}
		slices.SortFunc(got, func(a, b store.DeadLetterRef) int {
			return strings.Compare(a.Completion.String()+a.Key, b.Completion.String()+b.Key)
		})
		return got
	}
	same := cmpopts.IgnoreFields(store.DeadLetterRef{}, "At", "ExpireAt") // a store keeps one of them
	want := []store.DeadLetterRef{of[0], of[2], of[1]}
	slices.SortFunc(want, func(a, b store.DeadLetterRef) int {
		return strings.Compare(a.Completion.String()+a.Key, b.Completion.String()+b.Key)
	})
	if diff := cmp.Diff(want, found(completions...), same, equateEmpty); diff != "" {
		t.Errorf("of three completions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]store.DeadLetterRef{of[1]}, found(completions[1]), same); diff != "" {
		t.Errorf("of one completion (-want +got):\n%s", diff)
	}
	if got := found(completions[2]); len(got) != 0 {
		t.Errorf("of a completion without any: %+v", got)
	}
	if got := found(); len(got) != 0 {
		t.Errorf("of no completion: %+v", got)
	}
	if err := s.DeleteDeadLetters(t.Context(), []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, found(completions...), same, equateEmpty); diff != "" {
		t.Errorf("without the letters (-want +got):\n%s", diff)
	}
	// No look-up takes one for a marker.
	if markers, err := s.Applied(t.Context(), completions); err != nil || len(markers) != 0 {
		t.Errorf("markers of these completions: %v, %v", markers, err)
	}
}
