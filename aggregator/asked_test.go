package aggregator_test

import (
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/backendtest/fakestore"
	"github.com/countmill/countmill/wire"
)

// batchLetter is a dead letter that holds the parts.
func batchLetter(key string, at time.Time, parts ...wire.Part) aggregator.Dead {
	return aggregator.Dead{
		Key: key, Source: "message-1", Reason: "given up", Maybe: true, Time: at, At: time.Now(),
		Payload: wire.Append(nil, &wire.Batch{Time: at, Parts: parts}),
	}
}

func buryAll(t *testing.T, store *fakestore.Store, letters ...aggregator.Dead) {
	t.Helper()
	if err := store.Bury(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
}

// ask asks for the replay of a letter.
func ask(t *testing.T, store *fakestore.Store, d aggregator.Dead) {
	t.Helper()
	d.Key = aggregator.AskKey(d.Key)
	buryAll(t, store, d)
}

// decide decides about a letter of an hour ahead.
func decide(t *testing.T, store *fakestore.Store, letter string, want aggregator.Fate) (aggregator.Fate, error) {
	t.Helper()
	checked, err := store.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return aggregator.Decide(t.Context(), store, letter, want, time.Now().Add(time.Hour), checked.Settings)
}

func (r *rig) keys() (keys []string) {
	for _, d := range r.store.Letters() {
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

func TestALetterIsReplayedWhenAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		a, b := anonymous(one("a", 1)), anonymous(one("b", 2))
		first, other := batchLetter("aa", time.Now(), a, identified("x", 10)), batchLetter("bb", time.Now(), b)
		buryAll(t, store, first, other)
		r := run(t, store, aggregator.Config{})
		ask(t, store, first)
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 11})
		r.wantKeys(t, "bb")
		if got := r.agg.Stats().Replayed; got != 1 {
			t.Errorf("%d letters replayed, want 1", got)
		}
		// It comes back, is asked for again, and is delivered as a message too.
		buryAll(t, store, first)
		ask(t, store, first)
		r.send(t, a, identified("x", 10))
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 11})
		r.wantKeys(t, "bb")
	})
}

// Also where messages need no markers, and when the removal is not known to be done.
func TestAReplayThatIsRepeatedCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		d := batchLetter("aa", time.Now(), anonymous(one("a", 1)))
		buryAll(t, store, d)
		ask(t, store, d)
		store.On(fakestore.Discard, fakestore.Script(fakestore.UnknownNotApplied, fakestore.UnknownNotApplied))
		r := run(t, store, aggregator.Config{SkipAnonymousMarkers: true})
		run(t, store, aggregator.Config{})
		settle(5 * time.Minute)
		r.want(t, map[string]int64{"a": 1})
		r.wantKeys(t)
	})
}

// A letter goes only when it is counted.
func TestALetterThatIsSetAsideAgainStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := windowed(t, time.Hour)
		r := run(t, store, aggregator.Config{})
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
			for _, d := range store.Letters() {
				ask(t, store, d)
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

// What of a message cannot be counted is a letter of its own then.
func TestPartOfALetterIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		r := run(t, store, aggregator.Config{})
		r.send(t, identified("x", 1))
		settle(time.Minute)
		d := batchLetter("aa", time.Now(), anonymous(one("b", 2)), identified("x", 5))
		buryAll(t, store, d)
		ask(t, store, d)
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 1, "b": 2})
		if got := r.buried(t); len(r.keys()) != 1 || got["a"] != 5 || got["b"] != 0 {
			t.Errorf("letters %q hold %v, want one that holds 5 of a", r.keys(), got)
		}
	})
}

// What was maybe applied before a replay still may have been when the store refuses it.
func TestAReplayDoesNotForgetMaybe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		d := batchLetter("aa", time.Now(), anonymous(one("a", 1)))
		buryAll(t, store, d)
		ask(t, store, d)
		store.OnFold(onAdds(func() fakestore.Answer { return fakestore.Refused }))
		run(t, store, aggregator.Config{})
		settle(time.Minute)
		if got := store.Letters(); len(got) != 1 || !got[0].Maybe {
			t.Errorf("letters %+v, want one that was maybe applied", got)
		}
	})
}

// A newer process may have asked. Other letters do not wait for it.
func TestAnAskedLetterThatCannotBeReadStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		newer := aggregator.Dead{Key: "aa", Payload: versioned(wire.Version+1, time.Now(), anonymous(one("a", 1))), Time: time.Now()}
		other := batchLetter("bb", time.Now(), anonymous(one("b", 1)))
		for _, d := range []aggregator.Dead{newer, other} {
			buryAll(t, store, d)
			ask(t, store, d)
		}
		r := run(t, store, aggregator.Config{})
		settle(5 * time.Minute)
		r.want(t, map[string]int64{"b": 1})
		r.wantKeys(t, "aa", aggregator.AskKey("aa"))
		run(t, store, aggregator.Config{Decode: upTo(wire.Version + 1)})
		settle(5 * time.Minute)
		r.want(t, map[string]int64{"a": 1, "b": 1})
		r.wantKeys(t)
	})
}

// Whoever takes a wish back removes the copy.
func TestAWishCanBeTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		d := batchLetter("aa", time.Now(), anonymous(one("b", 1)))
		buryAll(t, store, d)
		ask(t, store, d)
		if err := store.Discard(t.Context(), []string{aggregator.AskKey("aa")}); err != nil {
			t.Fatal(err)
		}
		r := run(t, store, aggregator.Config{})
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
				store := large(t)
				d := batchLetter("aa", time.Now(), anonymous(one("a", 7)))
				buryAll(t, store, d)
				ask(t, store, d)
				gate, reached := make(chan struct{}), make(chan struct{}, 10)
				store.OnFold(func(_ int, c *aggregator.Commit) fakestore.Answer {
					if (len(c.Adds) == 0) == before && c.Markers[0].Fingerprint != wire.Fingerprint(aggregator.Discarded) {
						reached <- struct{}{}
						<-gate
					}
					return fakestore.OK
				})
				r := run(t, store, aggregator.Config{CommitTimeout: time.Hour})
				<-reached
				fate, err := decide(t, store, d.Key, aggregator.Discarded)
				if err != nil {
					t.Fatal(err)
				}
				if err := store.Discard(t.Context(), []string{d.Key, aggregator.AskKey(d.Key)}); err != nil {
					t.Fatal(err)
				}
				close(gate)
				settle(10 * time.Minute)
				want, total := aggregator.ToCount, int64(7)
				if before {
					want, total = aggregator.Discarded, 0
				}
				if got := store.Total("a"); fate != want || got != total {
					t.Errorf("it was told %d, and the total is %d; want %d and %d", fate, got, want, total)
				}
				// It comes back, and is asked for.
				buryAll(t, store, d)
				ask(t, store, d)
				settle(10 * time.Minute)
				if got := store.Total("a"); got != total {
					t.Errorf("the total is %d after it came back, want %d", got, total)
				}
				r.wantKeys(t)
			})
		})
	}
}

// One decision is made, also after a call with an unknown outcome.
func TestAFateIsDecidedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, answer := range map[string]fakestore.Answer{"applied": fakestore.UnknownApplied, "not applied": fakestore.UnknownNotApplied} {
			store := large(t)
			store.OnFold(fakestore.FoldScript(answer))
			if fate, err := decide(t, store, "k", aggregator.Discarded); err == nil {
				t.Fatalf("%s: decided %d, want an error", name, fate)
			}
			want := aggregator.ToCount
			if answer == fakestore.UnknownApplied {
				want = aggregator.Discarded
			}
			for _, ask := range []aggregator.Fate{aggregator.ToCount, aggregator.Discarded} {
				if fate, err := decide(t, store, "k", ask); fate != want || err != nil {
					t.Errorf("%s: decided %d, %v; want %d", name, fate, err, want)
				}
			}
			store.On(fakestore.Applied, func(int) fakestore.Answer { return fakestore.Blank })
			if fate, err := decide(t, store, "k", aggregator.ToCount); err == nil {
				t.Errorf("%s: decided %d when the marker was not found, want an error", name, fate)
			}
			store.On(fakestore.Applied, nil)
			if fates, err := aggregator.Fates(t.Context(), store, []string{"other", "k"}); err != nil || fates[0] != 0 || fates[1] != want {
				t.Errorf("%s: fates %v, %v; want none and %d", name, fates, err, want)
			}
		}
	})
}

func TestFatesOfNothingAskNobody(t *testing.T) {
	t.Parallel()
	store := large(t)
	fates, err := aggregator.Fates(t.Context(), store, nil)
	if err != nil || len(fates) != 0 || store.Calls(fakestore.Applied) != 0 {
		t.Errorf("got %v, %v after %d calls, want nothing after none", fates, err, store.Calls(fakestore.Applied))
	}
}
