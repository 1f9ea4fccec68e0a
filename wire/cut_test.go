package wire

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

// Two parts with one id would count as one part that was delivered twice.
func TestCutAnonymousKeepsEveryEntryUnderRandomIDs(t *testing.T) {
	t.Parallel()
	want := make([]Entry, 2*MaxEntries+1)
	for i := range want {
		want[i] = Entry{fmt.Sprint("c", i), int64(i + 1)}
	}
	var got []Entry
	seen := map[PartID]bool{{}: true}
	for range 2 { // the same entries twice: the ids do not depend on them
		got = nil
		for i, p := range CutAnonymous(rand.Reader, want) {
			if seen[p.ID] {
				t.Errorf("part %d has id %s, which is zero or another part's", i, p.ID)
			}
			seen[p.ID] = true
			got = append(got, p.Entries...)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries of the parts differ (-want +got):\n%s", diff)
	}
}

func TestCutMessage(t *testing.T) {
	t.Parallel()
	identified := countmill.Increment{Counter: "b", Delta: 3, ID: "x", Time: epoch}
	incs := []countmill.Increment{{Counter: "a", Delta: 1}, identified, {Counter: "a", Delta: -2, Time: epoch}, {Counter: "a", Delta: 1}}
	got, err := CutMessage("topic", "7", epoch.Add(999), incs)
	if err != nil {
		t.Fatal(err)
	}
	want := &Batch{Time: epoch, Parts: []Part{
		{ID: MessageID("topic", "7", 0), Kind: Foreign, Entries: []Entry{{"a", 2}}},
		{ID: MessageID("topic", "7", 1), Kind: Foreign, Minute: MinuteOf(epoch), Entries: []Entry{{"a", -2}}},
		CutIdentified(identified),
	}}
	if diff := cmp.Diff(want, got, sameBatch); diff != "" {
		t.Errorf("batch differs (-want +got):\n%s", diff)
	}
	for name, incs := range map[string][]countmill.Increment{
		"sum beyond 2^62":  sumTo(1, 1),
		"one id, two ways": {{Counter: "a", Delta: 1, ID: "x"}, {Counter: "a", Delta: 2, ID: "x"}},
	} {
		if _, err := CutMessage("topic", "7", epoch, incs); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%s: got error %v, want ErrInvalid", name, err)
		}
	}
}

// sumTo makes valid increments that sum to sign * (2^62 + more).
func sumTo(sign, more int64) []countmill.Increment {
	const n = MaxSum / (countmill.MaxDelta + 1)
	incs := []countmill.Increment{{Counter: "a", Delta: sign * (n + more)}}
	for range n {
		incs = append(incs, countmill.Increment{Counter: "a", Delta: sign * countmill.MaxDelta})
	}
	return incs
}

func TestCutRequestTakesSumsUpToTheLimit(t *testing.T) {
	t.Parallel()
	for _, sign := range []int64{1, -1} {
		parts, err := CutRequest("", "k", sumTo(sign, 0))
		if err != nil || parts[0].Entries[0].Delta != sign*MaxSum {
			t.Errorf("sum of %d: got %v, %v", sign*MaxSum, parts, err)
		}
		if parts, err := CutRequest("", "k", sumTo(sign, 1)); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("sum of %d: got %v, error %v, want ErrInvalid", sign*MaxSum+sign, parts, err)
		}
	}
	twice := []countmill.Increment{{Counter: "a", Delta: 1, ID: "x"}, {Counter: "a", Delta: 2, ID: "x"}}
	if parts, err := CutRequest("", "k", twice); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("one id with two deltas: got %v, error %v, want ErrInvalid", parts, err)
	}
}

// The order is frozen too: the request's fingerprint depends on it.
func TestCutRequestOrdersIdentifiedByCounterThenID(t *testing.T) {
	t.Parallel()
	parts, err := CutRequest("", "k", []countmill.Increment{
		{Counter: "b", Delta: 1, ID: "1"}, {Counter: "b", Delta: 1, ID: "2"},
		{Counter: "a", Delta: 1, ID: "3"}, {Counter: "a", Delta: 1, ID: "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got, want []PartID
	for _, p := range parts {
		got = append(got, p.ID)
	}
	want = append(want, KeyID("", "k", 0)) // the head, though it has no entries
	for _, inc := range []countmill.Increment{{Counter: "a", ID: "2"}, {Counter: "a", ID: "3"}, {Counter: "b", ID: "1"}, {Counter: "b", ID: "2"}} {
		want = append(want, CutIdentified(inc).ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ids differ (-want +got):\n%s", diff)
	}
}
