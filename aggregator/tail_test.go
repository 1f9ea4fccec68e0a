package aggregator_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// A tailed message is a batch with a seal, and what has to be true of its tail.
type tailed struct {
	seal  wire.SealID
	parts []wire.Part
}

func (m *tailed) tail() wire.PartID { return m.seal.Hash().Tail(0) }

func (m *tailed) payload() []byte {
	return wire.Append(nil, &wire.Batch{Time: time.Now().Truncate(time.Microsecond), Seal: m.seal, Parts: m.parts})
}

// watch makes the store fail the test if the tail is committed before every part is in the store, in
// the same commit or in a dead letter. answer is the store's, nil for OK.
func (m *tailed) watch(t *testing.T, st *fakestore.Store, answer func(n int, c *store.Commit) fakestore.Answer) {
	st.OnFold(func(n int, c *store.Commit) fakestore.Answer {
		has := func(id wire.PartID) bool {
			return slices.ContainsFunc(c.Markers, func(o store.Marker) bool { return o.ID == id })
		}
		if has(m.tail()) {
			for _, p := range m.parts {
				if _, ok := st.Marker(p.ID); !ok && !has(p.ID) && !inLetters(st, p.ID) {
					t.Errorf("commit %d has the tail, and part %s is nowhere", n, p.ID)
				}
			}
		}
		if answer == nil {
			return fakestore.OK
		}
		return answer(n, c)
	})
}

func inLetters(st *fakestore.Store, id wire.PartID) bool {
	return slices.ContainsFunc(st.Letters(), func(d store.DeadLetter) bool {
		b, err := wire.Decode(d.Payload)
		return err == nil && slices.ContainsFunc(b.Parts, func(p wire.Part) bool { return p.ID == id })
	})
}

// says fails the test unless the tail is there and says so.
func (m *tailed) says(t *testing.T, st *fakestore.Store, want wire.Fingerprint) {
	t.Helper()
	if got, ok := st.Marker(m.tail()); !ok || got.Fingerprint != want {
		t.Errorf("the tail is there: %t, and says %d; want %d", ok, got.Fingerprint, want)
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

// The tail is in the commit of the last parts if they are in one, and otherwise in a later commit.
func TestTailsComeWithTheLastPart(t *testing.T) {
	for _, tc := range []struct {
		name    string
		open    func(*testing.T) *fakestore.Store
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
				m := &tailed{wire.SealID{1}, tc.parts}
				m.watch(t, st, nil)
				r := run(t, st, aggregator.Config{})
				r.sendBytes(t, m.payload())
				settle(time.Minute)
				m.says(t, st, store.TailCounted)
				if got := st.FoldCalls(); got != tc.commits {
					t.Errorf("%d commits, want %d", got, tc.commits)
				}
				r.sendBytes(t, m.payload()) // delivered again
				r.sendBytes(t, m.payload())
				settle(time.Minute)
				m.says(t, st, store.TailCounted)
			})
		})
	}
}

// A single anonymous part whose id says so has no other tail. Any other single part has one.
func TestSolePartsAreTheirOwnTails(t *testing.T) {
	seal := wire.SealID{1}
	own := anonymous(one("a", 1))
	own.ID = seal.Hash().Sole(0)
	for name, tc := range map[string]struct {
		part    wire.Part
		markers int
	}{"its own": {own, 1}, "another id": {anonymous(one("a", 1)), 2}, "identified": {identified("x", 1), 2}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := large(t)
				m := &tailed{seal, []wire.Part{tc.part}}
				r := run(t, st, aggregator.Config{})
				r.sendBytes(t, m.payload())
				settle(time.Minute)
				if got := st.Counts(); got.Markers != tc.markers || got.Folds != 1 {
					t.Errorf("%d markers in %d commits, want %d in 1", got.Markers, got.Folds, tc.markers)
				}
			})
		})
	}
}

// Whatever the store answers, the tail waits for every part, and comes.
func TestTailsWaitForEveryAnswer(t *testing.T) {
	for _, first := range []fakestore.Answer{
		fakestore.UnknownApplied, fakestore.UnknownNotApplied, fakestore.ContendedApplied, fakestore.ContendedNotApplied,
		fakestore.MarkerExists, fakestore.NotApplied, fakestore.SlowApplied, fakestore.SlowNotApplied, fakestore.Deployment,
	} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprint("answer ", first, ", ", n, " times"), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					st := small(t)
					m := &tailed{wire.SealID{1}, append(wideParts(2), identified("x", 1), identified("y", 1))}
					m.watch(t, st, func(call int, c *store.Commit) fakestore.Answer {
						if call <= n {
							return first
						}
						return fakestore.OK
					})
					r := run(t, st, aggregator.Config{})
					r.sendBytes(t, m.payload())
					settle(5 * time.Minute)
					m.says(t, st, store.TailCounted)
				})
			})
		}
	}
}

// A part in a dead letter is noted under its message's tail before the tail comes, also when the
// store has refused the content of a large commit, and when the writing of letters fails.
func TestTailsSayWhatWasSetAside(t *testing.T) {
	poison := anonymous(one("poison", 1))
	for name, tc := range map[string]struct {
		bad    wire.Part
		reason error
	}{"refused": {poison, store.ErrRefused}, "id reused": {identified("x", 2), nil}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := large(t)
				r := run(t, st, aggregator.Config{})
				r.send(t, identified("x", 1))
				settle(time.Minute)
				m := &tailed{wire.SealID{1}, []wire.Part{anonymous(one("a", 1)), tc.bad, anonymous(one("b", 1)), identified("y", 1)}}
				m.watch(t, st, func(_ int, c *store.Commit) fakestore.Answer {
					if errors.Is(tc.reason, store.ErrRefused) && slices.ContainsFunc(c.Adds, func(a store.ShardDelta) bool { return a.Counter == "poison" }) {
						return fakestore.Refused
					}
					return fakestore.OK
				})
				st.On(fakestore.PutDeadLetters, fakestore.Script(fakestore.UnknownNotApplied, fakestore.UnknownApplied))
				r.sendBytes(t, m.payload())
				settle(5 * time.Minute)
				m.says(t, st, store.TailAside)
				asides, err := st.Asides(t.Context(), []wire.PartID{m.tail()})
				letters := st.Letters()
				if err != nil || len(asides) != 1 || len(letters) != 1 || asides[0].Letter != letters[0].Key {
					t.Fatalf("asides %+v, %v of letters %+v", asides, err, letters)
				}
				if got := asides[0].Parts; len(got) != 1 || got[0].ID != tc.bad.ID || got[0].Fingerprint != tc.bad.Fingerprint() {
					t.Errorf("the aside has parts %+v, want %s", got, tc.bad.ID)
				}
			})
		})
	}
}

// JSON of other programs has a tail by the broker's id, also if nobody can read it.
func TestForeignMessagesHaveTails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, aggregator.Config{})
		r.sendJSON(t, "7", `[{"counter":"a"},{"counter":"b","id":"x"}]`, time.Now())
		r.sendJSON(t, "8", `[{"counter":"a","delta":1.5}]`, time.Now())
		settle(time.Minute)
		for id, want := range map[string]wire.Fingerprint{"7": store.TailCounted, "8": store.TailAside} {
			tail := wire.ForeignHash("countmill", id).Tail(0)
			if m, ok := st.Marker(tail); !ok || m.Fingerprint != want {
				t.Errorf("message %s: the tail is there: %t, and says %d; want %d", id, ok, m.Fingerprint, want)
			}
			if asides, _ := st.Asides(t.Context(), []wire.PartID{tail}); len(asides) != int(want-store.TailCounted) {
				t.Errorf("message %s: asides %+v", id, asides)
			}
		}
	})
}
