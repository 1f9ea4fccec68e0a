package aggregator_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// batchAt is a batch of a moment, as bytes.
func batchAt(at time.Time, parts ...wire.Part) []byte {
	return wire.Append(nil, &wire.Batch{Time: at, Parts: parts})
}

// askAll writes letters, and requests their replay.
func askAll(t *testing.T, st *protocoltest.Store, payloads ...[]byte) {
	t.Helper()
	for i, payload := range payloads {
		d := store.DeadLetter{Key: fmt.Sprintf("%032x", i), Payload: payload, Time: time.Now(), At: time.Now()}
		putDeadLetters(t, st, d)
		ask(t, st, d)
	}
}

// onAdds answers folds that add something. A decision about a letter adds nothing.
func onAdds(answer func() protocoltest.Answer) func(int, *store.Commit) protocoltest.Answer {
	return func(_ int, c *store.Commit) protocoltest.Answer {
		if len(c.Adds) == 0 {
			return protocoltest.OK
		}
		return answer()
	}
}

// Many letters are read a page at a time, at the rate of dead letters, while messages go on.
func TestDeadLettersAreReplayedInPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		var payloads [][]byte
		for i := range 55 {
			payloads = append(payloads, batchAt(time.Now(), anonymous(one("a", int64(i+1)))))
		}
		askAll(t, st, payloads...)
		gate := make(chan struct{})
		st.OnFold(onAdds(func() protocoltest.Answer { <-gate; return protocoltest.OK }))
		r := run(t, st, aggregator.Config{DeadLetterRate: 1, CommitTimeout: time.Hour})
		settle(2 * time.Minute)
		if got := r.agg.Stats().HeldMessages; got != 10 {
			t.Errorf("%d letters held, want a page of 10", got)
		}
		close(gate)
		settle(25 * time.Second)
		if got := len(st.DeadLetters()) / 2; got < 15 || got > 45 {
			t.Errorf("%d letters left after 25 s at one a second, want about 25", got)
		}
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 55 * 56 / 2})
	})
}

// The memory of letters that are replayed is bounded too. One letter alone always fits.
func TestDeadLettersAreReplayedWithinTheirShareOfMemory(t *testing.T) {
	for held, want := range map[int]int64{1: 1, 8 * 3000: 3, 1 << 20: 10} {
		t.Run(fmt.Sprint(held), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := large(t)
				var payloads [][]byte
				for i := range 20 {
					payloads = append(payloads, batchAt(time.Now(), anonymous(one("a", int64(i+1)))))
				}
				askAll(t, st, payloads...)
				gate := make(chan struct{})
				st.OnFold(onAdds(func() protocoltest.Answer { <-gate; return protocoltest.OK }))
				r := run(t, st, aggregator.Config{HeldMemory: held, CommitTimeout: time.Hour})
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

// A batch is at most wire.MaxBatch bytes.
func TestADeadLetterLargerThanABatchWaitsForAPerson(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		askAll(t, st, append(batchAt(time.Now(), anonymous(one("a", 1))), make([]byte, wire.MaxBatch)...))
		r := run(t, st, aggregator.Config{})
		settle(time.Hour)
		if len(st.DeadLetters()) != 2 {
			t.Errorf("dead letters %q; want it left alone", r.reasons())
		}
	})
}

// Dead letters that stay are read now and then, not all the time.
func TestDeadLettersThatStayAreReadOnceARound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		askAll(t, st, []byte("garbage"))
		before := st.Calls("scan letter")
		run(t, st, aggregator.Config{})
		settle(10 * time.Minute)
		if got := st.Calls("scan letter") - before; got < 50 || got > 130 {
			t.Errorf("letters were read %d times in ten minutes, want twice every 10 to 20 s", got)
		}
	})
}

// Run waits for a store's answer about letters, also when the drain's time is over: the store is
// closed after Run.
func TestTheEndWaitsForAReadOfDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		gate := make(chan struct{})
		st.On("scan letter", func(int) protocoltest.Answer { <-gate; return protocoltest.OK })
		r := run(t, st, aggregator.Config{DrainTimeout: time.Second})
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

// Aggregators that start together do not all ask for letters at once.
func TestTheFirstLookForDeadLettersIsPutOffAtRandom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		var looks atomic.Int64
		st.On("scan letter", func(int) protocoltest.Answer { looks.Add(1); return protocoltest.OK })
		run(t, st, clock.With(aggregator.Config{}, &clock.Env{Random: repeats{}})) // draws 6 of 10 seconds
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
