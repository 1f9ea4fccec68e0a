package aggregator_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// A flushedBatch is a batch with a flush, and what has to be true of its completion.
type flushedBatch struct {
	flush wire.FlushID
	parts []wire.Part
}

func (m *flushedBatch) completion() wire.PartID { return m.flush.Hash().Completion(0) }

func (m *flushedBatch) payload() []byte { return m.payloadAt(time.Now()) }

func (m *flushedBatch) payloadAt(at time.Time) []byte {
	return wire.Append(nil, &wire.Batch{Time: at.Truncate(time.Microsecond), Flush: m.flush, Parts: m.parts})
}

// watch makes the store fail the test if the completion is committed before every part is in the store, in
// the same commit or in a dead letter. answer is the store's, nil for OK.
func (m *flushedBatch) watch(t *testing.T, st *protocoltest.Store, answer func(n int, c *store.Commit) protocoltest.Answer) {
	st.OnFold(func(n int, c *store.Commit) protocoltest.Answer {
		has := func(id wire.PartID) bool {
			return slices.ContainsFunc(c.Markers, func(o store.Marker) bool { return o.ID == id })
		}
		if has(m.completion()) {
			for _, p := range m.parts {
				if _, ok := st.Marker(p.ID); !ok && !has(p.ID) && !inDeadLetters(st, p.ID) {
					t.Errorf("commit %d has the completion, and part %s is nowhere", n, p.ID)
				}
			}
		}
		if answer == nil {
			return protocoltest.OK
		}
		return answer(n, c)
	})
}

func inDeadLetters(st *protocoltest.Store, id wire.PartID) bool {
	return slices.ContainsFunc(st.DeadLetters(), func(d store.DeadLetter) bool {
		b, err := wire.Decode(d.Payload)
		return err == nil && slices.ContainsFunc(b.Parts, func(p wire.Part) bool { return p.ID == id })
	})
}

// says fails the test unless the completion is there and says so.
func (m *flushedBatch) says(t *testing.T, st *protocoltest.Store, want wire.Fingerprint) {
	t.Helper()
	if got, ok := st.Marker(m.completion()); !ok || got.Fingerprint != want {
		t.Errorf("the completion is there: %t, and says %d; want %d", ok, got.Fingerprint, want)
	}
}

func wideParts(n int) (parts []wire.Part) {
	for i := range n {
		var entries []wire.Entry
		for j := range wire.MaxEntries {
			entries = append(entries, wire.Entry{Counter: fmt.Sprint("c", i, ":", j), Delta: 1})
		}
		parts = append(parts, anonymous(entries...))
	}
	return parts
}

// The completion is in the commit of the last parts if they are in one, and otherwise in a later commit.
func TestCompletionsComeWithTheLastPart(t *testing.T) {
	for _, tc := range []struct {
		name    string
		open    func(*testing.T) *protocoltest.Store
		parts   []wire.Part
		commits int
	}{
		{"one commit", large, []wire.Part{anonymous(one("a", 1)), anonymous(one("b", 1)), identified("x", 1)}, 1},
		{"two commits and a later one", small, wideParts(2), 3},
		{"a full commit and a later one", small, wideParts(1), 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := tc.open(t)
				m := &flushedBatch{wire.FlushID{1}, tc.parts}
				m.watch(t, st, nil)
				r := run(t, st, aggregator.Config{})
				r.sendBytes(t, m.payload())
				settle(time.Minute)
				m.says(t, st, store.CompletionCounted)
				if got := st.FoldCalls(); got != tc.commits {
					t.Errorf("%d commits, want %d", got, tc.commits)
				}
				r.sendBytes(t, m.payload()) // delivered again
				r.sendBytes(t, m.payload())
				settle(time.Minute)
				m.says(t, st, store.CompletionCounted)
			})
		})
	}
}

// Completions neither wait for a window nor open one: they are committed when no other commit is under way.
func TestCompletionsDoNotWaitForAWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := small(t)
		m := &flushedBatch{wire.FlushID{1}, wideParts(2)}
		r := run(t, st, aggregator.Config{Linger: 10 * time.Second})
		r.sendBytes(t, m.payload())
		settle(10*time.Second + 100*time.Millisecond)
		m.says(t, st, store.CompletionCounted)
		r.send(t, anonymous(one("next", 1)))
		settle(10*time.Second - 50*time.Millisecond)
		if got := st.FoldCalls(); got != 3 {
			t.Errorf("%d commits, want 3: the next window closed before its linger", got)
		}
		settle(100 * time.Millisecond)
		if got := st.FoldCalls(); got != 4 {
			t.Errorf("%d commits, want 4: the next window is still open", got)
		}
	})
}

// A single anonymous part whose id says so has no other completion. Any other single part has one.
func TestSinglePartsAreTheirOwnCompletions(t *testing.T) {
	flush := wire.FlushID{1}
	own := anonymous(one("a", 1))
	own.ID = flush.Hash().Single(0)
	for name, tc := range map[string]struct {
		part    wire.Part
		markers int
	}{"its own": {own, 1}, "another id": {anonymous(one("a", 1)), 2}, "identified": {identified("x", 1), 2}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := large(t)
				m := &flushedBatch{flush, []wire.Part{tc.part}}
				r := run(t, st, aggregator.Config{})
				r.sendBytes(t, m.payload())
				settle(time.Minute)
				if got := st.Counts(); got.Wrote["marker"] != tc.markers || got.Folds != 1 {
					t.Errorf("%d markers in %d commits, want %d in 1", got.Wrote["marker"], got.Folds, tc.markers)
				}
			})
		})
	}
}

// JSON of other programs has a completion by the broker's id, also if nobody can read it.
func TestForeignMessagesHaveCompletions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, aggregator.Config{})
		r.sendJSON(t, "7", `[{"counter":"a"},{"counter":"b","id":"x"}]`, time.Now())
		r.sendJSON(t, "8", `[{"counter":"a","delta":1.5}]`, time.Now())
		settle(time.Minute)
		for id, want := range map[string]wire.Fingerprint{"7": store.CompletionCounted, "8": store.CompletionDeadLettered} {
			completion := wire.ForeignHash("countmill", id).Completion(0)
			if m, ok := st.Marker(completion); !ok || m.Fingerprint != want {
				t.Errorf("message %s: the completion is there: %t, and says %d; want %d", id, ok, m.Fingerprint, want)
			}
			if refs, _ := st.DeadLetterRefs(t.Context(), []wire.PartID{completion}); len(refs) != int(want-store.CompletionCounted) {
				t.Errorf("message %s: dead-letter references %+v", id, refs)
			}
		}
	})
}

// A dead-letter reference names store.MaxDeadLetterRefParts parts of a letter, or none if there are more.
func TestAnDeadLetterRefHasABoundedNumberOfParts(t *testing.T) {
	for parts, named := range map[int]int{store.MaxDeadLetterRefParts: store.MaxDeadLetterRefParts, store.MaxDeadLetterRefParts + 1: 0} {
		t.Run(fmt.Sprint(parts), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := large(t)
				incs := make([]countmill.Increment, parts-1) // the head is a part, too
				for i := range incs {
					incs[i] = countmill.Increment{Counter: "a", Delta: 1, ID: fmt.Sprint(i)}
				}
				request, err := wire.CutRequest("", "key", incs)
				if err != nil {
					t.Fatal(err)
				}
				m := &flushedBatch{wire.FlushID{1}, request}
				r := run(t, st, aggregator.Config{})
				r.sendBytes(t, m.payloadAt(time.Now().Add(store.MaxAhead+time.Hour))) // all are refused in one letter
				settle(time.Minute)
				refs, err := st.DeadLetterRefs(t.Context(), []wire.PartID{m.completion()})
				if err != nil || len(refs) != 1 || len(st.DeadLetters()) != 1 {
					t.Fatalf("%d dead-letter references of %d letters, %v; want one", len(refs), len(st.DeadLetters()), err)
				}
				if _, ok := st.Marker(m.completion()); ok {
					t.Error("the completion is there, and too far ahead")
				}
				if got := len(refs[0].Parts); got != named {
					t.Errorf("the reference of %d parts names %d, want %d", parts, got, named)
				}
			})
		})
	}
}
