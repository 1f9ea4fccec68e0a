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
	"github.com/countmill/countmill/store/protocol/protocoltest"
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
		st.On("write letter", func(int) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		waiting := r.send(t, identified("x", 2))
		r.send(t, anonymous(one("b", 1)))
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 1, "b": 1})
		if got := r.agg.Degraded(); !strings.Contains(got, "1 dead letters are not written yet") && !strings.Contains(got, "0 dead letters") || r.agg.Ready() != nil {
			t.Errorf("degraded %q, ready %v; want a letter that waits, and ready", got, r.agg.Ready())
		}
		st.On("write letter", protocoltest.Script())
		settle(time.Minute)
		if got := r.agg.Degraded(); got != "" || !acked(waiting) || len(st.DeadLetters()) != 1 {
			t.Errorf("written: degraded %q, acknowledged %v, %d letters", got, acked(waiting), len(st.DeadLetters()))
		}
	})
}

// Each reply names the conflicts of its own message, also if two messages meet in one window. All other
// parts of the message are counted, and no dead letter is written.
func TestAWaitingPublisherGetsConflicts(t *testing.T) {
	id := func(id string, delta int64) wire.Part {
		return wire.CutIdentified(countmill.Increment{Counter: "ids", Delta: delta, ID: id})
	}
	merged := anonymous(one("a", 1))
	other := merged
	other.Entries = []wire.Entry{one("a", 5)}
	used := keyed(t, "k", 30, 7, "x")
	var many []wire.Part
	for i := range int64(100) {
		many = append(many, id("x", 10+i))
	}
	for name, tc := range map[string]struct {
		first, second, conflicts []wire.Part
		want                     map[string]int64
	}{
		"ids": {[]wire.Part{id("x", 1), id("y", 2)}, []wire.Part{id("x", 10), id("y", 2), id("z", 4), id("x", 20)},
			[]wire.Part{id("x", 10), id("x", 20)}, map[string]int64{"ids": 7, "b": 1}},
		"many uses of an id":          {[]wire.Part{id("x", 1), id("y", 2)}, slices.Concat(many, []wire.Part{id("x", 1)}), many, map[string]int64{"ids": 3, "b": 1}},
		"a request under a used key":  {keyed(t, "k", 1, 1), used, used[:1], map[string]int64{"c0": 1, "b": 1}},
		"a message of such a request": {keyed(t, "k", 1, 1), used[:2], used[:1], map[string]int64{"c0": 1, "b": 1}},
		"a used id in a request":      {[]wire.Part{id("x", 1)}, keyed(t, "k", 1, 7, "x", "y"), []wire.Part{id("x", 7)}, map[string]int64{"c0": 7, "ids": 8, "b": 1}},
		// A sender that could make dead letters of them could stop all others.
		"merged increments": {[]wire.Part{merged}, []wire.Part{other, anonymous(one("c", 1))}, []wire.Part{other}, map[string]int64{"a": 1, "c": 1, "b": 1}},
	} {
		for _, between := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(name, between), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := run(t, large(t), aggregator.Config{})
					first, won := r.ask(t, tc.first...)
					settle(between)
					second, lost := r.ask(t, tc.second...)
					third, none := r.ask(t, anonymous(one("b", 1)))
					settle(time.Minute)
					r.want(t, tc.want)
					wantReused(t, "first", won)
					wantReused(t, "second", lost, tc.conflicts...)
					wantReused(t, "third", none)
					if !acked(first) || !acked(second) || !acked(third) || len(r.store.DeadLetters()) != 0 {
						t.Errorf("acknowledged %v %v %v, letters %q, want all and none", acked(first), acked(second), acked(third), r.reasons())
					}
					if got := r.store.Counts().Folds + r.store.Counts().Collisions; got > 6 {
						t.Errorf("%d commits, want a few however many the conflicts are", got)
					}
					if got := r.agg.Stats().Conflicts; got != int64(len(tc.conflicts)) {
						t.Errorf("%d conflicts in the stats, want %d", got, len(tc.conflicts))
					}
				})
			})
		}
	}
}
