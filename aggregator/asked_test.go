package aggregator_test

import (
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// batchDeadLetter is a dead letter that holds the parts.
func batchDeadLetter(key string, at time.Time, parts ...wire.Part) store.DeadLetter {
	return store.DeadLetter{
		Key: key, Source: "message-1", Reason: "given up", Maybe: true, Time: at, At: time.Now(),
		Payload: wire.Append(nil, &wire.Batch{Time: at, Parts: parts}),
	}
}

func putDeadLetters(t *testing.T, st *fakestore.Store, letters ...store.DeadLetter) {
	t.Helper()
	if err := st.PutDeadLetters(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
}

// ask requests the replay of a letter.
func ask(t *testing.T, st *fakestore.Store, d store.DeadLetter) {
	t.Helper()
	d.Key = store.ReplayKey(d.Key)
	putDeadLetters(t, st, d)
}

// decide decides about a letter of an hour ahead.
func decide(t *testing.T, st *fakestore.Store, letter string, want store.Decision) (store.Decision, error) {
	t.Helper()
	checked, err := st.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return store.DecideDeadLetter(t.Context(), st, letter, want, time.Now().Add(time.Hour), checked.Settings)
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

func TestADeadLetterIsReplayedWhenAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		a, b := anonymous(one("a", 1)), anonymous(one("b", 2))
		first, other := batchDeadLetter("aa", time.Now(), a, identified("x", 10)), batchDeadLetter("bb", time.Now(), b)
		putDeadLetters(t, st, first, other)
		r := run(t, st, aggregator.Config{})
		ask(t, st, first)
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 11})
		r.wantKeys(t, "bb")
		if got := r.agg.Stats().Replayed; got != 1 {
			t.Errorf("%d letters replayed, want 1", got)
		}
		// The letter comes back, its replay is requested again, and its parts are delivered in a
		// message too.
		putDeadLetters(t, st, first)
		ask(t, st, first)
		r.send(t, a, identified("x", 10))
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 11})
		r.wantKeys(t, "bb")
	})
}

// Also if messages need no markers, and if the outcome of the removal is unknown.
func TestAReplayThatIsRepeatedCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := certain(t)
		d := batchDeadLetter("aa", time.Now(), anonymous(one("a", 1)))
		putDeadLetters(t, st, d)
		ask(t, st, d)
		st.On(fakestore.DeleteDeadLetters, fakestore.Script(fakestore.UnknownNotApplied, fakestore.UnknownNotApplied))
		r := run(t, st, aggregator.Config{})
		run(t, st, aggregator.Config{})
		settle(5 * time.Minute)
		r.want(t, map[string]int64{"a": 1})
		r.wantKeys(t)
	})
}

// A letter is removed only when it is counted.
func TestADeadLetterThatIsDeadLetteredAgainStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := windowed(t, time.Hour)
		r := run(t, st, aggregator.Config{})
		r.sendAt(t, time.Now().Add(-2*time.Hour), anonymous(one("a", 1)))
		r.send(t, identified("x", 1))
		settle(time.Minute)
		r.send(t, identified("x", 5))
		settle(time.Minute)
		before := r.keys()
		if len(before) != 2 {
			t.Fatalf("letters %q, want one beyond the window and one of a reused id", r.reasons())
		}
		for range 2 {
			for _, d := range st.DeadLetters() {
				ask(t, st, d)
			}
			settle(time.Minute)
			r.want(t, map[string]int64{"a": 1})
			r.wantKeys(t, before...)
		}
		if got := r.agg.Stats().Replayed; got != 0 {
			t.Errorf("%d letters replayed, want none", got)
		}
	})
}

// The parts of a message that cannot be counted become a letter of their own.
func TestPartOfADeadLetterIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, aggregator.Config{})
		r.send(t, identified("x", 1))
		settle(time.Minute)
		d := batchDeadLetter("aa", time.Now(), anonymous(one("b", 2)), identified("x", 5))
		putDeadLetters(t, st, d)
		ask(t, st, d)
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 1, "b": 2})
		if got := r.deadTotals(t); len(r.keys()) != 1 || got["a"] != 5 || got["b"] != 0 {
			t.Errorf("letters %q hold %v, want one with 5 of a", r.keys(), got)
		}
	})
}

// A part that was maybe applied before a replay is still maybe applied if the store refuses it.
func TestAReplayDoesNotForgetMaybe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		d := batchDeadLetter("aa", time.Now(), anonymous(one("a", 1)))
		putDeadLetters(t, st, d)
		ask(t, st, d)
		st.OnFold(onAdds(func() fakestore.Answer { return fakestore.Refused }))
		run(t, st, aggregator.Config{})
		settle(time.Minute)
		if got := st.DeadLetters(); len(got) != 1 || !got[0].Maybe {
			t.Errorf("letters %+v, want one with Maybe", got)
		}
	})
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

// The deletion of a replay request withdraws it.
func TestAReplayRequestCanBeWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		d := batchDeadLetter("aa", time.Now(), anonymous(one("b", 1)))
		putDeadLetters(t, st, d)
		ask(t, st, d)
		if err := st.DeleteDeadLetters(t.Context(), []string{store.ReplayKey("aa")}); err != nil {
			t.Fatal(err)
		}
		r := run(t, st, aggregator.Config{})
		settle(5 * time.Minute)
		r.want(t, map[string]int64{})
		r.wantKeys(t, "aa")
	})
}

// A letter that an aggregator has read is discarded before it decides to count it, or after.
func TestADiscardOrTheCountComesFirst(t *testing.T) {
	for name, before := range map[string]bool{"before it decides": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := large(t)
				d := batchDeadLetter("aa", time.Now(), anonymous(one("a", 7)))
				putDeadLetters(t, st, d)
				ask(t, st, d)
				gate, reached := make(chan struct{}), make(chan struct{}, 10)
				st.OnFold(func(_ int, c *store.Commit) fakestore.Answer {
					if (len(c.Adds) == 0) == before && c.Markers[0].Fingerprint != wire.Fingerprint(store.DecisionDiscarded) {
						reached <- struct{}{}
						<-gate
					}
					return fakestore.OK
				})
				r := run(t, st, aggregator.Config{CommitTimeout: time.Hour})
				<-reached
				decision, err := decide(t, st, d.Key, store.DecisionDiscarded)
				if err != nil {
					t.Fatal(err)
				}
				if err := st.DeleteDeadLetters(t.Context(), []string{d.Key, store.ReplayKey(d.Key)}); err != nil {
					t.Fatal(err)
				}
				close(gate)
				settle(10 * time.Minute)
				want, total := store.DecisionCounted, int64(7)
				if before {
					want, total = store.DecisionDiscarded, 0
				}
				if got := st.Total("a"); decision != want || got != total {
					t.Errorf("decision %d, total %d; want %d and %d", decision, got, want, total)
				}
				// The letter comes back, and its replay is requested.
				putDeadLetters(t, st, d)
				ask(t, st, d)
				settle(10 * time.Minute)
				if got := st.Total("a"); got != total {
					t.Errorf("the total is %d after it came back, want %d", got, total)
				}
				r.wantKeys(t)
			})
		})
	}
}

// One decision is made, also after a call with an unknown outcome.
func TestADecisionIsDecidedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, answer := range map[string]fakestore.Answer{"applied": fakestore.UnknownApplied, "not applied": fakestore.UnknownNotApplied} {
			st := large(t)
			st.OnFold(fakestore.FoldScript(answer))
			if decision, err := decide(t, st, "k", store.DecisionDiscarded); err == nil {
				t.Fatalf("%s: decided %d, want an error", name, decision)
			}
			want := store.DecisionCounted
			if answer == fakestore.UnknownApplied {
				want = store.DecisionDiscarded
			}
			for _, ask := range []store.Decision{store.DecisionCounted, store.DecisionDiscarded} {
				if decision, err := decide(t, st, "k", ask); decision != want || err != nil {
					t.Errorf("%s: decided %d, %v; want %d", name, decision, err, want)
				}
			}
			st.On(fakestore.Applied, func(int) fakestore.Answer { return fakestore.Blank })
			if decision, err := decide(t, st, "k", store.DecisionCounted); err == nil {
				t.Errorf("%s: decided %d when the marker was not found, want an error", name, decision)
			}
			st.On(fakestore.Applied, nil)
			if decisions, err := store.Decisions(t.Context(), st, []string{"other", "k"}); err != nil || decisions[0] != 0 || decisions[1] != want {
				t.Errorf("%s: decisions %v, %v; want none and %d", name, decisions, err, want)
			}
		}
	})
}

func TestDecisionsOfNoDeadLettersMakeNoCall(t *testing.T) {
	t.Parallel()
	st := large(t)
	decisions, err := store.Decisions(t.Context(), st, nil)
	if err != nil || len(decisions) != 0 || st.Calls(fakestore.Applied) != 0 {
		t.Errorf("got %v, %v after %d calls, want nothing after none", decisions, err, st.Calls(fakestore.Applied))
	}
}
