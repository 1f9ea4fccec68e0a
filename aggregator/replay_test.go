package aggregator_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/backendtest/fakestore"
	"github.com/countmill/countmill/internal/env"
	"github.com/countmill/countmill/wire"
)

// versioned is a batch as a version to come may write it: ours under another number.
func versioned(version byte, at time.Time, parts ...wire.Part) []byte {
	payload := wire.Append(nil, &wire.Batch{Time: at, Parts: parts})
	payload[1] = version
	return payload
}

// upTo reads such batches up to a version.
func upTo(version byte) func([]byte) (*wire.Batch, error) {
	return func(payload []byte) (*wire.Batch, error) {
		if len(payload) > 1 && payload[0] == 8 && payload[1] <= version {
			payload = append([]byte{8, wire.Version}, payload[2:]...)
		}
		return wire.Decode(payload)
	}
}

// aside lets an aggregator that reads version 1 set batches aside, and ends it.
func aside(t *testing.T, store *fakestore.Store, payloads ...[]byte) {
	t.Helper()
	r := run(t, store, aggregator.Config{})
	for _, payload := range payloads {
		m := r.sendBytes(t, payload)
		settle(time.Minute)
		if !acked(m) {
			t.Fatal("a batch of a newer version is not acknowledged")
		}
	}
	if err := r.finish(); err != nil {
		t.Fatal(err)
	}
	if got := len(store.Letters()); got != len(payloads) {
		t.Fatalf("%d dead letters, want %d", got, len(payloads))
	}
}

func TestLettersOfANewerVersionAreCountedByWhoCanReadThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		aside(t, store,
			versioned(4, time.Now(), anonymous(one("three", 1))),
			versioned(3, time.Now(), anonymous(one("a", 1)), identified("x", 10)),
			versioned(3, time.Now(), keyed(t, "k", 30, 7)...),
			[]byte("garbage"))
		old := run(t, store, aggregator.Config{})
		settle(time.Hour)
		if len(store.Letters()) != 4 || old.finish() != nil {
			t.Fatalf("dead letters %q after an hour of an aggregator that reads no more, want all 4", old.reasons())
		}
		r := run(t, store, aggregator.Config{Decode: upTo(3)})
		settle(3 * time.Minute)
		if got := store.Totals(); got["a"] != 11 || got["c0"] != 7 || got["c29"] != 7 || got["three"] != 0 {
			t.Errorf("totals %v, want 11 of a, 7 of c0 to c29, and nothing of version 3", got)
		}
		if got := len(store.Letters()); got != 2 || r.agg.Stats().Replayed != 2 {
			t.Errorf("dead letters %q, %d replayed, want version 3 and garbage, 2 replayed", r.reasons(), r.agg.Stats().Replayed)
		}
		if r.agg.Stats().HeldMessages != 0 {
			t.Error("messages are held")
		}
	})
}

// The letter may come back, or the message itself be delivered again to who can read it.
func TestALetterThatComesBackCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		payload := versioned(3, time.Now(), anonymous(one("a", 1)))
		aside(t, store, payload)
		letters := store.Letters()
		store.On(fakestore.Discard, fakestore.Script(fakestore.UnknownNotApplied, fakestore.UnknownApplied))
		r := run(t, store, aggregator.Config{Decode: upTo(3)})
		settle(2 * time.Minute)
		if err := store.Bury(t.Context(), letters); err != nil {
			t.Fatal(err)
		}
		if m := r.sendBytes(t, payload); !acked(m) {
			settle(3 * time.Minute)
		}
		r.want(t, map[string]int64{"a": 1})
		if got := r.reasons(); len(got) != 0 {
			t.Errorf("dead letters %q, want none", got)
		}
	})
}

// Also where the bus never repeats and anonymous parts have no markers: letters do repeat.
func TestALettersPartsHaveMarkers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		aside(t, store, versioned(3, time.Now(), anonymous(one("a", 1))))
		store.On(fakestore.Discard, fakestore.Script(fakestore.UnknownNotApplied))
		r := run(t, store, aggregator.Config{Decode: upTo(3), SkipAnonymousMarkers: true})
		settle(5 * time.Minute)
		r.want(t, map[string]int64{"a": 1})
		if got := r.reasons(); len(got) != 0 {
			t.Errorf("dead letters %q, want none", got)
		}
	})
}

// onAdds answers folds that add something. A decision about a letter adds nothing.
func onAdds(answer func() fakestore.Answer) func(int, *aggregator.Commit) fakestore.Answer {
	return func(_ int, c *aggregator.Commit) fakestore.Answer {
		if len(c.Adds) == 0 {
			return fakestore.OK
		}
		return answer()
	}
}

func TestALetterStaysUntilItsFoldIsDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		aside(t, store, versioned(3, time.Now(), anonymous(one("a", 1)), anonymous(one("b", 1))))
		store.OnFold(onAdds(func() fakestore.Answer { return fakestore.UnknownNotApplied }))
		r := run(t, store, aggregator.Config{Decode: upTo(3), DrainTimeout: time.Second})
		settle(10 * time.Minute)
		if len(store.Letters()) != 1 || store.Calls(fakestore.Discard) != 0 {
			t.Errorf("dead letters %q before the fold is done, want the one", r.reasons())
		}
		if err := r.finish(); err != nil {
			t.Errorf("an end with a letter in process: %v; it went back to no bus", err)
		}
		if len(store.Letters()) != 1 {
			t.Errorf("dead letters %q after a drain, want the one", r.reasons())
		}
	})
}

// The window is judged by the letter's time, not by that of its replay.
func TestALetterBeyondTheWindowIsNotCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := windowed(t, time.Hour)
		at := time.Now()
		aside(t, store, versioned(3, at.Add(12*time.Hour), anonymous(one("a", 1))), versioned(3, at, anonymous(one("a", 1))))
		settle(time.Hour)
		r := run(t, store, aggregator.Config{Decode: upTo(3)})
		settle(3 * time.Minute)
		r.want(t, map[string]int64{})
		want := "beyond the deduplication window of 1h0m0s"
		if got := r.reasons(); len(got) != 2 || got[0] != want || got[1] != want {
			t.Errorf("dead letters %q, want two %q", got, want)
		}
	})
}

// What this version says cannot be counted is a letter of another reason; it is not lost,
// and not tried for ever.
func TestALetterThatIsInvalidBecomesAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		aside(t, store, []byte{8, 2, 'x'})
		r := run(t, store, aggregator.Config{Decode: upTo(3)})
		settle(3 * time.Minute)
		letters := store.Letters()
		if len(letters) != 1 || letters[0].Reason == "newer wire version 3, this is version 2" || len(letters[0].Payload) != 3 {
			t.Errorf("dead letters %q, want one with the bytes and another reason", r.reasons())
		}
	})
}

// Many letters are read a page at a time, at the rate of dead letters, while messages go on.
func TestLettersAreReplayedInPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		var payloads [][]byte
		for i := range 55 {
			payloads = append(payloads, versioned(3, time.Now(), anonymous(one("a", int64(i+1)))))
		}
		aside(t, store, payloads...)
		gate := make(chan struct{})
		store.OnFold(onAdds(func() fakestore.Answer { <-gate; return fakestore.OK }))
		r := run(t, store, aggregator.Config{Decode: upTo(3), DeadLetterRate: 1, CommitTimeout: time.Hour})
		settle(2 * time.Minute)
		if got := r.agg.Stats().HeldMessages; got != 10 {
			t.Errorf("%d letters held, want a page of 10", got)
		}
		close(gate)
		settle(25 * time.Second)
		if got := len(store.Letters()); got < 15 || got > 45 {
			t.Errorf("%d letters left after 25 s at one a second, want about 25", got)
		}
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 55 * 56 / 2})
	})
}

// The memory of letters that are replayed is bounded too. One letter alone always fits.
func TestLettersAreReplayedWithinTheirShareOfMemory(t *testing.T) {
	for held, want := range map[int]int64{1: 1, 8 * 3000: 3, 1 << 20: 10} {
		t.Run(fmt.Sprint(held), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := large(t)
				var payloads [][]byte
				for i := range 20 {
					payloads = append(payloads, versioned(3, time.Now(), anonymous(one("a", int64(i+1)))))
				}
				aside(t, store, payloads...)
				gate := make(chan struct{})
				store.OnFold(onAdds(func() fakestore.Answer { <-gate; return fakestore.OK }))
				r := run(t, store, aggregator.Config{Decode: upTo(3), HeldMemory: held, CommitTimeout: time.Hour})
				settle(time.Minute)
				if got := r.agg.Stats(); got.HeldMessages != want || got.HeldMemory < 1400*want || got.HeldMemory > 1600*want {
					t.Errorf("%d letters of %d bytes held, want %d of 1,400 to 1,600 each", got.HeldMessages, got.HeldMemory, want)
				}
				close(gate)
				settle(10 * time.Minute)
				r.want(t, map[string]int64{"a": 20 * 21 / 2})
			})
		})
	}
}

func TestTwoAggregatorsReplayTheSameLetters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := fakestore.New(fakestore.Options{Latency: 100 * time.Millisecond, Errorf: t.Errorf})
		var payloads [][]byte
		for i := range 30 {
			payloads = append(payloads, versioned(3, time.Now(), anonymous(one("a", 1), one(fmt.Sprint("b", i), 1))))
		}
		aside(t, store, payloads...)
		for range 3 {
			run(t, store, aggregator.Config{Decode: upTo(3)})
		}
		settle(5 * time.Minute)
		if got := store.Total("a"); got != 30 || len(store.Letters()) != 0 {
			t.Errorf("a is %d, %d letters are left, want 30 and none", got, len(store.Letters()))
		}
	})
}

// A batch is at most wire.MaxBatch bytes. What is larger is held and discarded by a person.
func TestALetterLargerThanABatchWaitsForAPerson(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		aside(t, store, append(versioned(3, time.Now(), anonymous(one("a", 1))), make([]byte, wire.MaxBatch)...))
		r := run(t, store, aggregator.Config{Decode: upTo(3)})
		settle(time.Hour)
		if len(store.Letters()) != 1 || store.Calls(fakestore.Discard) != 0 {
			t.Errorf("dead letters %q, %d discarded; want it left alone", r.reasons(), store.Calls(fakestore.Discard))
		}
	})
}

// What stays is asked for now and then, not all the time.
func TestLettersThatStayAreReadOnceARound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		aside(t, store, versioned(4, time.Now(), anonymous(one("a", 1))))
		before := store.Calls(fakestore.Dead)
		run(t, store, aggregator.Config{Decode: upTo(3)})
		settle(10 * time.Minute)
		if got := store.Calls(fakestore.Dead) - before; got < 25 || got > 65 {
			t.Errorf("letters were read %d times in ten minutes, want every 10 to 20 s", got)
		}
	})
}

// A page is done with when its last letter is: more are not taken beside it.
func TestALetterThatIsNotSettledHoldsBackTheNextPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		payloads := [][]byte{versioned(3, time.Now(), anonymous(one("slow", 1)))}
		for range 14 {
			payloads = append(payloads, versioned(3, time.Now(), anonymous(one("a", 1))))
		}
		aside(t, store, payloads...)
		store.OnFold(func(_ int, c *aggregator.Commit) fakestore.Answer {
			for _, a := range c.Adds {
				if a.Counter == "slow" {
					return fakestore.UnknownNotApplied
				}
			}
			return fakestore.OK
		})
		before := store.Calls(fakestore.Dead)
		r := run(t, store, aggregator.Config{Decode: upTo(3)})
		settle(time.Hour)
		first := store.Total("slow") == 0 && store.Total("a") < 14 // slow is in the first page, or comes in the second
		if pages := store.Calls(fakestore.Dead) - before; pages > 2 || !first && pages != 2 || r.agg.Stats().HeldMessages != 1 {
			t.Errorf("%d pages were read, a is %d, %d letters are held; want none read while one is held", pages, store.Total("a"), r.agg.Stats().HeldMessages)
		}
		store.OnFold(nil)
		settle(time.Hour)
		r.want(t, map[string]int64{"a": 14, "slow": 1})
		if got := r.reasons(); len(got) != 0 {
			t.Errorf("dead letters %q, want none", got)
		}
	})
}

// A store's answer about letters has to come before Run ends, also when the drain's time is up: the store
// is closed then.
func TestTheEndWaitsForAReadOfLetters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		gate := make(chan struct{})
		store.On(fakestore.Dead, func(int) fakestore.Answer { <-gate; return fakestore.OK })
		r := run(t, store, aggregator.Config{DrainTimeout: time.Second})
		settle(15 * time.Second)
		var ended atomic.Bool
		go func() { _ = r.finish(); ended.Store(true) }()
		settle(5 * time.Second)
		if ended.Load() {
			t.Error("Run ended in the middle of a read")
		}
		close(gate)
		if err := r.wait(); err != nil {
			t.Error(err)
		}
	})
}

// Keys of other letters are not touched, also those that come behind in the order of keys.
func TestOtherLettersAreLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		other := aggregator.Dead{Key: "other", Payload: wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: []wire.Part{anonymous(one("a", 1))}})}
		if err := store.Bury(t.Context(), []aggregator.Dead{other}); err != nil {
			t.Fatal(err)
		}
		r := run(t, store, aggregator.Config{})
		settle(10 * time.Minute)
		r.want(t, map[string]int64{})
		if len(store.Letters()) != 1 {
			t.Error("a letter that waits for a person is gone")
		}
	})
}

// Aggregators that start together do not all ask for letters at once.
func TestTheFirstLookForLettersIsPutOffAtRandom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := large(t)
		var looks atomic.Int64
		store.On(fakestore.Dead, func(int) fakestore.Answer { looks.Add(1); return fakestore.OK })
		run(t, store, aggregator.Config{Env: &env.Env{Random: repeats{}}}) // draws 6 of 10 seconds
		settle(5 * time.Second)
		if got := looks.Load(); got != 0 {
			t.Errorf("%d looks for letters within 5 s", got)
		}
		settle(5 * time.Second)
		if looks.Load() == 0 {
			t.Error("no look for letters within 10 s")
		}
	})
}
