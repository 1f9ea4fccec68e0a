package publisher

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// reporting is a bus that reports that the ids of some parts are taken, as a bus does whose
// subscriber acknowledges them.
func reporting(t *testing.T, taken ...wire.Part) *fakeBus {
	bus := newBus(t)
	bus.answer = func(_ int, m *message.Message) (bool, error) {
		reply := wire.ReplyOf(wire.PassReply(t.Context(), m.Context()))
		b, err := wire.Decode(m.Payload)
		if err != nil {
			t.Error(err)
		}
		for _, p := range b.Parts {
			for _, other := range taken {
				if p.ID == other.ID && p.Fingerprint() != other.Fingerprint() {
					reply.Add(wire.Use{ID: p.ID, Fingerprint: p.Fingerprint()})
				}
			}
		}
		return true, nil
	}
	return bus
}

func identified(counter, id string, delta int64) countmill.Increment {
	return countmill.Increment{Counter: counter, ID: id, Delta: delta}
}

func wantConflicts(t *testing.T, what string, err error, want ...countmill.Conflict) {
	t.Helper()
	got, ok := errors.AsType[*countmill.ConflictsError](err)
	switch {
	case len(want) == 0 && err != nil:
		t.Errorf("%s: got %v, want no error", what, err)
	case len(want) == 0:
	case !ok || !errors.Is(err, countmill.ErrIDsReused) || errors.Is(err, countmill.ErrConflict):
		t.Errorf("%s: got %v, want conflicts %v", what, err, want)
	default:
		if diff := cmp.Diff(want, got.Conflicts); diff != "" {
			t.Errorf("%s: conflicts (-want +got):\n%s", what, diff)
		}
	}
}

// Calls share a message, and use one id with different deltas: each error names its own increments.
func TestEachCallGetsItsOwnConflicts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := reporting(t, wire.CutIdentified(identified("a", "x", 1)), wire.CutIdentified(identified("b", "y", 1)))
		p, err := New(bus, Config{Linger: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		calls := []struct {
			incs []countmill.Increment
			want []countmill.Conflict
		}{
			{[]countmill.Increment{identified("a", "x", 1)}, nil},
			{[]countmill.Increment{identified("a", "", 5), identified("a", "x", 2), identified("b", "x", 2), identified("a", "x", 2)}, []countmill.Conflict{{Position: 1, Counter: "a", ID: "x", Delta: 2}, {Position: 3, Counter: "a", ID: "x", Delta: 2}}},
			{[]countmill.Increment{identified("a", "x", 3), identified("b", "y", 3)}, []countmill.Conflict{{Position: 0, Counter: "a", ID: "x", Delta: 3}, {Position: 1, Counter: "b", ID: "y", Delta: 3}}},
			{[]countmill.Increment{identified("b", "y", 1), identified("a", "z", 2)}, nil},
			{[]countmill.Increment{identified("a", "", 2)}, nil},
		}
		for range 2 { // a repeat gets the same answer
			var all sync.WaitGroup
			before := bus.messages
			for i, c := range calls {
				all.Go(func() { wantConflicts(t, string(rune('A'+i)), errOf(p.Publish(t.Context(), c.incs...)), c.want...) })
			}
			all.Wait()
			if bus.messages != before+1 {
				t.Errorf("%d messages, want one that all calls share", bus.messages-before)
			}
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A key that the store has with another request refuses the whole request, but not the first one.
func TestAKeyThatTheStoreKnowsIsAConflict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, err := wire.CutRequest("", "k", []countmill.Increment{identified("a", "", 1)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(reporting(t, first[0], wire.CutIdentified(identified("a", "x", 1))), Config{Linger: -1})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := p.PublishKeyed(t.Context(), "", "k", identified("a", "", 2), identified("a", "x", 2))
			if !errors.Is(err, countmill.ErrConflict) || errors.Is(err, countmill.ErrIDsReused) {
				t.Errorf("another body: got %v, want %v", err, countmill.ErrConflict)
			}
		}
		wantConflicts(t, "first body", errOf(p.PublishKeyed(t.Context(), "", "k", identified("a", "", 1))))
		if _, err := p.PublishKeyed(t.Context(), "", "k", identified("a", "", 2)); !errors.Is(err, countmill.ErrConflict) {
			t.Errorf("another body after the first: got %v, want %v", err, countmill.ErrConflict)
		}
		wantConflicts(t, "an id beside a key", errOf(p.PublishKeyed(t.Context(), "", "other", identified("a", "", 2), identified("a", "x", 2))), countmill.Conflict{Position: 1, Counter: "a", ID: "x", Delta: 2})
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The reply of a failed try is void: the next one decides.
func TestConflictsOfATryThatFailedAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		bus.answer = func(call int, m *message.Message) (bool, error) {
			if call > 0 {
				return true, nil
			}
			part := wire.CutIdentified(identified("a", "x", 1))
			wire.ReplyOf(wire.PassReply(t.Context(), m.Context())).Add(wire.Use{ID: part.ID, Fingerprint: part.Fingerprint()})
			return false, errors.New("nacked")
		}
		p, err := New(bus, Config{Linger: -1})
		if err != nil {
			t.Fatal(err)
		}
		wantConflicts(t, "second try", errOf(p.Publish(t.Context(), identified("a", "x", 1))))
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// If a part of merged increments was not counted, the calls with merged increments have an unknown
// outcome, and no others.
func TestMergedIncrementsOfARefusedPart(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]func(*wire.Reply, wire.Use){"reused": (*wire.Reply).Add, "expired": (*wire.Reply).AddExpired} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testMergedRefused(t, add) }) })
	}
}

func testMergedRefused(t *testing.T, add func(*wire.Reply, wire.Use)) {
	bus := newBus(t)
	bus.answer = func(_ int, m *message.Message) (bool, error) {
		b, err := wire.Decode(m.Payload)
		if err != nil {
			t.Error(err)
		}
		for _, p := range b.Parts {
			if p.Kind == wire.Anonymous {
				add(wire.OfferedReply(m.Context()), wire.Use{ID: p.ID, Fingerprint: p.Fingerprint()})
			}
		}
		return true, nil
	}
	p, err := New(bus, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Add("a", 1); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	var own, merged error
	calls.Go(func() { _, own = p.Publish(t.Context(), identified("a", "x", 1)) })
	calls.Go(func() {
		_, merged = p.Publish(t.Context(), countmill.Increment{Counter: "a", Delta: 1}, identified("a", "y", 1))
	})
	synctest.Wait() // both are in the open batch
	_, flushed := p.Flush(t.Context())
	calls.Wait()
	if own != nil || !errors.Is(merged, countmill.ErrOutcomeUnknown) || !errors.Is(flushed, countmill.ErrOutcomeUnknown) {
		t.Errorf("got %v for an increment with an id, %v for a merged one, %v for Flush; want nil and twice ErrOutcomeUnknown", own, merged, flushed)
	}
	if s := p.Stats(); s.Durable != 1 || s.Unknown != 3 {
		t.Errorf("got %d durable and %d unknown increments, want 1 and 3", s.Durable, s.Unknown)
	}
	if err := p.Close(t.Context()); !errors.Is(err, countmill.ErrOutcomeUnknown) {
		t.Errorf("Close: got %v", err)
	}
}
