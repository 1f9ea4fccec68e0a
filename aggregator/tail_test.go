package aggregator_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
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

func (m *tailed) payload() []byte { return m.payloadAt(time.Now()) }

func (m *tailed) payloadAt(at time.Time) []byte {
	return wire.Append(nil, &wire.Batch{Time: at.Truncate(time.Microsecond), Seal: m.seal, Parts: m.parts})
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

// Two parts of a message are too far ahead. Its tail would be, too: the store does not get it.
func TestAMessageTooFarAheadHasNoTail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		m := &tailed{wire.SealID{1}, []wire.Part{anonymous(one("a", 1)), anonymous(one("b", 1))}}
		r := run(t, st, aggregator.Config{})
		sent := r.sendBytes(t, m.payloadAt(time.Now().Add(store.MaxAhead+time.Hour)))
		settle(time.Minute)
		if got := len(st.Letters()); !acked(sent) || got != 2 {
			t.Errorf("acknowledged: %t, with %d dead letters; want both parts there", acked(sent), got)
		}
		if _, ok := st.Marker(m.tail()); ok {
			t.Error("the tail is there")
		}
	})
}

// Two copies of a message wait for one tail, which is in the commit of the second:
//
//	0:00  the first is too far ahead, and its letter cannot be written
//	0:59  the second is not too far ahead any more; its commit has the tail, and takes an hour
//	1:00  the letter is written: the first waits for the tail in that commit
func TestACopyWaitsForTheTailOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st, began := large(t), time.Now()
		at := func(minutes time.Duration) { time.Sleep(time.Until(began.Add(minutes * time.Minute))) }
		st.On(fakestore.PutDeadLetters, func(int) fakestore.Answer {
			if time.Since(began) < time.Hour {
				return fakestore.UnknownNotApplied
			}
			return fakestore.OK
		})
		m := &tailed{wire.SealID{1}, []wire.Part{anonymous(one("a", 1))}}
		m.watch(t, st, func(int, *store.Commit) fakestore.Answer { at(120); return fakestore.OK })
		r := run(t, st, aggregator.Config{CommitTimeout: 2 * time.Hour})
		payload := m.payloadAt(began.Add(store.MaxAhead + 30*time.Minute))
		first := r.sendBytes(t, payload)
		at(59)
		second := r.sendBytes(t, payload)
		at(90)
		synctest.Wait()
		if len(st.Letters()) != 1 || st.FoldCalls() != 1 || acked(first) || acked(second) {
			t.Errorf("%d letters and %d commits, acknowledged: %t and %t; want one letter, one commit and neither", len(st.Letters()), st.FoldCalls(), acked(first), acked(second))
		}
		at(120)
		synctest.Wait() // no time passes: both wait for nothing else
		if !acked(first) || !acked(second) {
			t.Errorf("acknowledged after the commit: %t and %t, want both", acked(first), acked(second))
		}
		m.says(t, st, store.TailCounted)
	})
}

// An aside names store.MaxAsideParts parts of a letter, or none if there are more.
func TestAnAsideHasABoundedNumberOfParts(t *testing.T) {
	for parts, named := range map[int]int{store.MaxAsideParts: store.MaxAsideParts, store.MaxAsideParts + 1: 0} {
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
				m := &tailed{wire.SealID{1}, request}
				r := run(t, st, aggregator.Config{})
				r.sendBytes(t, m.payloadAt(time.Now().Add(store.MaxAhead+time.Hour))) // all are refused in one letter
				settle(time.Minute)
				asides, err := st.Asides(t.Context(), []wire.PartID{m.tail()})
				if err != nil || len(asides) != 1 || len(st.Letters()) != 1 {
					t.Fatalf("%d asides of %d letters, %v; want one", len(asides), len(st.Letters()), err)
				}
				if got := len(asides[0].Parts); got != named {
					t.Errorf("the aside of %d parts names %d, want %d", parts, got, named)
				}
			})
		})
	}
}
