package aggregator_test

import (
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// batchDeadLetter is a dead letter that holds the parts.
func batchDeadLetter(key string, at time.Time, parts ...wire.Part) store.DeadLetter {
	return store.DeadLetter{
		Key: key, Source: "message-1", Reason: "given up", Maybe: true, Time: at, At: time.Now(),
		Payload: wire.Append(nil, &wire.Batch{Time: at, Parts: parts}),
	}
}

func putDeadLetters(t *testing.T, st *protocoltest.Store, letters ...store.DeadLetter) {
	t.Helper()
	if err := st.PutDeadLetters(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
}

// ask requests the replay of a letter.
func ask(t *testing.T, st *protocoltest.Store, d store.DeadLetter) {
	t.Helper()
	d.Key = store.ReplayKey(d.Key)
	putDeadLetters(t, st, d)
}

func (r *rig) keys() (keys []string) {
	for _, d := range r.store.DeadLetters() {
		keys = append(keys, d.Key)
	}
	return keys
}

func (r *rig) wantKeys(t *testing.T, want ...string) {
	t.Helper()
	got := r.keys()
	if len(got) != len(want) {
		t.Errorf("letters %q, want %q", got, want)
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("letters %q, want %q", got, want)
		}
	}
}

// A newer process may have requested the replay. Other letters do not wait for it.
func TestAReplayedDeadLetterThatCannotBeReadStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		newer := store.DeadLetter{Key: "aa", Payload: versioned(wire.Version+1, time.Now(), anonymous(one("a", 1))), Time: time.Now()}
		other := batchDeadLetter("bb", time.Now(), anonymous(one("b", 1)))
		for _, d := range []store.DeadLetter{newer, other} {
			putDeadLetters(t, st, d)
			ask(t, st, d)
		}
		r := run(t, st, aggregator.Config{})
		settle(5 * time.Minute)
		r.want(t, map[string]int64{"b": 1})
		r.wantKeys(t, "aa", store.ReplayKey("aa"))
		run(t, st, aggregator.Config{Decode: upTo(wire.Version + 1)})
		settle(5 * time.Minute)
		r.want(t, map[string]int64{"a": 1, "b": 1})
		r.wantKeys(t)
	})
}
