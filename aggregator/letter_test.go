package aggregator_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/backendtest/fakestore"
	"github.com/countmill/countmill/wire"
)

func identified(id string, delta int64) wire.Part {
	return wire.CutIdentified(countmill.Increment{Counter: "a", Delta: delta, ID: id})
}

// buried is the sum of the deltas of all dead letters by counter. Every one of them
// has to be a batch that can be read again.
func (r *rig) buried(t *testing.T) map[string]int64 {
	t.Helper()
	sums := make(map[string]int64)
	for _, d := range r.store.Letters() {
		b, err := wire.Decode(d.Payload)
		if err != nil {
			t.Errorf("dead letter %s (%s) cannot be replayed: %v", d.Key, d.Reason, err)
			continue
		}
		for _, p := range b.Parts {
			for _, e := range p.Entries {
				sums[e.Counter] += e.Delta
			}
		}
	}
	return sums
}

// Each message of a request begins with a copy of the head.
// A part that follows a head can be refused alone, after its head was applied.
// Beyond the horizon nobody knows whether an earlier delivery was applied.
func TestADeadLetterThatCannotBeWrittenHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		huge := r.sendBytes(t, bytes.Repeat([]byte("x"), 2<<20)) // more than an entity takes
		for range 30 {
			r.sendBytes(t, []byte(strings.Repeat("y", len(r.sent))))
		}
		settle(10 * time.Minute)
		if got := len(r.store.Letters()); got != 30 {
			t.Errorf("%d dead letters, want the 30 that can be written", got)
		}
		if acked(huge) {
			t.Error("acknowledged although its dead letter is not written")
		}
		if err := r.agg.Ready(); err != nil {
			t.Errorf("not ready although messages are taken: %v", err)
		}
	})
}

func TestNotReadyWhileDeadLettersKeepMessagesOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		store.On(fakestore.Bury, func(int) fakestore.Answer { return fakestore.UnknownNotApplied })
		r := run(t, store, aggregator.Config{HeldMessages: 20})
		for i := range 20 {
			r.sendBytes(t, []byte(strings.Repeat("y", i+1)))
		}
		settle(time.Minute)
		if r.agg.Ready() == nil {
			t.Error("ready although no message is taken")
		}
		store.On(fakestore.Bury, nil)
		settle(2 * time.Minute)
		if err := r.agg.Ready(); err != nil || len(store.Letters()) != 20 {
			t.Errorf("after recovery: %v, %d dead letters, want 20", err, len(store.Letters()))
		}
	})
}

// A client that sends one id with ever other deltas must not slow the others down.
