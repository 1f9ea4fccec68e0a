package aggregator_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// ask delivers a batch whose publisher waits, and returns the message with its reply.
func (r *rig) ask(t *testing.T, parts ...wire.Part) (*message.Message, *wire.Reply) {
	t.Helper()
	reply := new(wire.Reply)
	m := message.NewMessage("", wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: parts}))
	m.SetContext(wire.PassReply(t.Context(), wire.OfferReply(context.Background(), reply)))
	select {
	case r.out <- m:
	case <-time.After(time.Hour):
		t.Fatal("the aggregator does not take the message")
	}
	return m, reply
}

func use(p wire.Part) wire.Use { return wire.Use{ID: p.ID, Fingerprint: p.Fingerprint()} }

func wantReused(t *testing.T, what string, reply *wire.Reply, want ...wire.Part) {
	t.Helper()
	uses := make(map[wire.Use]struct{})
	for _, p := range want {
		uses[use(p)] = struct{}{}
	}
	if got := reply.Reused(); !maps.Equal(got, uses) && len(got)+len(uses) > 0 {
		t.Errorf("%s: got conflicts %v, want %v", what, got, uses)
	}
}

// Each reply names the conflicts of its own message, also if two messages meet in one window. All
// other parts of the message are counted, and no dead letter is written.
func TestAWaitingPublisherGetsConflicts(t *testing.T) {
	for name, between := range map[string]time.Duration{"together": 0, "later": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, large(t), aggregator.Config{})
				first, won := r.ask(t, identified("x", 1), identified("y", 2))
				settle(between)
				second, lost := r.ask(t, identified("x", 10), identified("y", 2), identified("z", 4), identified("x", 20))
				other, none := r.ask(t, anonymous(one("b", 1)))
				settle(time.Minute)
				r.want(t, map[string]int64{"a": 7, "b": 1})
				wantReused(t, "first", won)
				wantReused(t, "second", lost, identified("x", 10), identified("x", 20))
				wantReused(t, "other", none)
				if !acked(first) || !acked(second) || !acked(other) || len(r.store.DeadLetters()) != 0 {
					t.Errorf("acknowledged %v %v %v, letters %q, want all and none", acked(first), acked(second), acked(other), r.reasons())
				}
				if got := r.agg.Stats().Conflicts; got != 2 {
					t.Errorf("%d conflicts in the stats, want 2", got)
				}
			})
		})
	}
}

// The reply to a request with a key names its head, and nothing of the request is counted,
// whichever of its messages a part is in.
func TestAWaitingPublisherGetsARefusedHead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		r.ask(t, keyed(t, "k", 1, 1)...)
		settle(time.Minute)
		parts := keyed(t, "k", 30, 7, "x")
		m, whole := r.ask(t, parts...)
		_, one := r.ask(t, parts[0], parts[1])
		settle(time.Minute)
		r.want(t, map[string]int64{"c0": 1})
		wantReused(t, "whole", whole, parts[0])
		wantReused(t, "one", one, parts[0])
		if !acked(m) || len(r.store.DeadLetters()) != 0 {
			t.Errorf("acknowledged %v, letters %q, want true and none", acked(m), r.reasons())
		}
	})
}

// In a request with a key, the id of an increment may be taken although the key is not.
func TestAWaitingPublisherGetsAConflictInARequestWithAKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		r.ask(t, wire.CutIdentified(countmill.Increment{Counter: "ids", Delta: 1, ID: "x"}))
		settle(time.Minute)
		for range 2 {
			parts := keyed(t, "k", 1, 7, "x", "y")
			_, reply := r.ask(t, parts...)
			settle(time.Minute)
			r.want(t, map[string]int64{"c0": 7, "ids": 8})
			wantReused(t, "keyed", reply, wire.CutIdentified(countmill.Increment{Counter: "ids", Delta: 7, ID: "x"}))
		}
	})
}

// Of two copies of one part, one message's publisher waits and the other's does not.
func TestOneCopyBecomesAReplyAndTheOtherADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		r.send(t, identified("x", 1))
		settle(time.Minute)
		_, reply := r.ask(t, identified("x", 2))
		r.send(t, identified("x", 2))
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 1})
		wantReused(t, "second", reply, identified("x", 2))
		if got := r.deadTotals(t)["a"]; got != 2 || len(r.store.DeadLetters()) != 1 {
			t.Errorf("%d dead letters hold %d, want 1 that holds 2", len(r.store.DeadLetters()), got)
		}
	})
}

// many makes increments with ids and the same delta.
func many(n int, delta int64) []wire.Part {
	parts := make([]wire.Part, n)
	for i := range parts {
		parts[i] = identified(fmt.Sprint("e", i), delta)
	}
	return parts
}

// Waiting letters are joined, so that their messages and other messages do not wait for long.
// None is lost, and each can be read and replayed under new ids.
func TestDeadLettersInACrowdAreJoined(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 5000
		r := run(t, large(t), aggregator.Config{})
		r.send(t, many(n, 1)...)
		settle(time.Minute)
		began := time.Now()
		reused := r.send(t, append(many(n, 10), identified("fresh", 7))...)
		other := r.send(t, anonymous(one("b", 1)))
		for !acked(reused) || !acked(other) {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the messages waited %s for their letters", took)
		}
		r.want(t, map[string]int64{"a": n + 7, "b": 1})
		letters := r.store.DeadLetters()
		if got := r.deadTotals(t)["a"]; got != 10*n || len(letters) > n/500 {
			t.Errorf("%d letters hold %d, want at most %d that hold %d", len(letters), got, n/500, 10*n)
		}
		for _, d := range letters {
			if b, err := wire.Decode(d.Payload); err != nil || len(d.Payload) > wire.MaxBatch || d.Source != b.Parts[0].ID.String() || !d.IDTaken() {
				t.Errorf("letter %s: %v, %d bytes, source %s, reason %q", d.Key, err, len(d.Payload), d.Source, d.Reason)
			}
		}
	})
}

// Dead letters of requests with a key, of increments in them and of other parts are joined, and each
// part keeps its time.
func TestJoinedDeadLettersKeepTheirParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{DeadLetterRate: 1})
		r.send(t, append(keyed(t, "k1", 1, 1), keyed(t, "k2", 1, 1, "x")...)...)
		settle(time.Minute)
		st := r.store
		st.On(fakestore.PutDeadLetters, fakestore.Script(fakestore.UnknownNotApplied)) // so that all of them wait
		sent := time.Now()
		r.send(t, append(keyed(t, "k1", 30, 7, "in"), identified("late", 3))...)
		r.send(t, append(keyed(t, "k3", 1, 9, "x"), identified("late", 4))...)
		settle(time.Hour)
		parts := make(map[wire.Kind]int)
		for _, d := range st.DeadLetters() {
			b, err := wire.Decode(d.Payload)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range b.Parts {
				parts[p.Kind]++
				if at := p.Time; len(b.Parts) > 3 && at.Sub(sent).Abs() > time.Second {
					t.Errorf("part of %v has the time %s, sent at %s", p.Kind, at, sent)
				}
			}
		}
		kinds := slices.Sorted(maps.Keys(parts))
		t.Log(kinds, parts, len(st.DeadLetters()))
		if parts[wire.Head] == 0 || parts[wire.Follower] != 1 || parts[wire.IdentifiedFollower]+parts[wire.Identified] != 3 {
			t.Errorf("the letters hold %v", parts)
		}
	})
}

// Waiting letters are reported, although everything else is taken and folded.
func TestDeadLettersThatWaitAreSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, aggregator.Config{})
		r.send(t, identified("x", 1))
		settle(time.Minute)
		if got := r.agg.Degraded(); got != "" {
			t.Errorf("nothing waits: got %q", got)
		}
		st.On(fakestore.PutDeadLetters, func(int) fakestore.Answer { return fakestore.UnknownNotApplied })
		waiting := r.send(t, identified("x", 2))
		r.send(t, anonymous(one("b", 1)))
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 1, "b": 1})
		if got := r.agg.Degraded(); !strings.Contains(got, "1 dead letters are not written yet") && !strings.Contains(got, "0 dead letters") || r.agg.Ready() != nil {
			t.Errorf("degraded %q, ready %v; want a letter that waits, and ready", got, r.agg.Ready())
		}
		st.On(fakestore.PutDeadLetters, fakestore.Script())
		settle(time.Minute)
		if got := r.agg.Degraded(); got != "" || !acked(waiting) || len(st.DeadLetters()) != 1 {
			t.Errorf("written: degraded %q, acknowledged %v, %d letters", got, acked(waiting), len(st.DeadLetters()))
		}
	})
}

// Merged increments under an id that was counted with others are reported too: a sender that could make
// dead letters of them could stop all others.
func TestAWaitingPublisherGetsConflictsOfMergedIncrements(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		first := anonymous(one("a", 1))
		other := first
		other.Entries = []wire.Entry{one("a", 5)}
		r.ask(t, first)
		settle(time.Minute)
		m, reply := r.ask(t, other, anonymous(one("c", 1)))
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 1, "c": 1})
		wantReused(t, "merged increments", reply, other)
		if !acked(m) || len(r.store.DeadLetters()) != 0 {
			t.Errorf("acknowledged %t, letters %q, want the ack and none", acked(m), r.reasons())
		}
	})
}
