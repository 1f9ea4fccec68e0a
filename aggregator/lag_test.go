package aggregator_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// held runs an aggregator that folds nothing: it holds every message.
func held(t *testing.T, wall func() time.Time) *rig {
	t.Helper()
	st := strict(t, protocoltest.Options{Clock: wall, CertainOutcome: true})
	st.OnFold(func(int, *store.Commit) protocoltest.Answer { return protocoltest.Deployment })
	return run(t, st, clock.With(aggregator.Config{WorkerID: "w"}, &clock.Env{Wall: wall}))
}

// worker returns the worker record.
func (r *rig) worker(t *testing.T) store.Worker {
	t.Helper()
	workers, err := r.store.Workers(t.Context())
	if err != nil || len(workers) != 1 {
		t.Fatalf("got workers %v, %v, want one", workers, err)
	}
	return workers[0]
}

func year(n int) time.Time { return time.Date(n, 1, 2, 0, 0, 0, 0, time.UTC) }

// A message that was held for a minute is at least a minute old. A publisher's clock may be
// ahead, and the broker's time may be in a year that no count of nanoseconds reaches.
func TestLagIsAtLeastTheTimeHeld(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		ahead       time.Duration // of the publisher's clock
		at, broker  time.Time     // instead, and the broker's
		least, most time.Duration
	}{
		"right":                           {0, time.Time{}, time.Time{}, time.Minute, time.Minute},
		"behind":                          {-time.Hour, time.Time{}, time.Time{}, 61 * time.Minute, 61 * time.Minute},
		"ahead":                           {time.Hour, time.Time{}, time.Time{}, time.Minute, time.Minute},
		"ahead, and the broker's is 1970": {time.Hour, time.Time{}, year(1970), century / 4, century},
		"of the year 1970":                {0, year(1970), time.Time{}, century / 4, century},
		"of the year 2261":                {0, year(2261), year(9000), time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := held(t, nil)
				if c.at.IsZero() {
					c.at = time.Now().Add(c.ahead)
				}
				m := message.NewMessage("", wire.Append(nil, &wire.Batch{Time: c.at, Parts: []wire.Part{anonymous(one("a", 1))}}))
				if !c.broker.IsZero() {
					m.Metadata.Set(wire.MetaPublished, c.broker.Format(time.RFC3339Nano))
				}
				r.deliver(t, m)
				settle(time.Minute)
				if got := r.agg.Stats().Lag; got < c.least || got > c.most {
					t.Errorf("lag %s, want %s to %s", got, c.least, c.most)
				}
			})
		})
	}
}

// All clocks are set while a message is held, or its machine is suspended for two hours.
func TestLagWhileClocksAreSet(t *testing.T) {
	for by, want := range map[time.Duration]time.Duration{
		-2 * time.Hour: time.Minute, 0: time.Minute, 2 * time.Hour: 2*time.Hour + time.Minute,
	} {
		t.Run(by.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var set atomic.Int64
				r := held(t, func() time.Time { return time.Now().Round(0).Add(time.Duration(set.Load())) })
				r.sendAt(t, time.Now().Add(24*time.Hour), anonymous(one("a", 1)))
				settle(0)
				set.Store(int64(by))
				settle(time.Minute)
				if got := r.agg.Stats().Lag; got.Round(time.Millisecond) != want {
					t.Errorf("lag %s after a minute and clocks set by %s, want %s", got, by, want)
				}
			})
		})
	}
}

// An aggregator that takes no messages reports that it does not know the lag of the bus.
func TestTheRecordReportsAStalledAggregator(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		refuse := func(int) protocoltest.Answer { return protocoltest.Deployment }
		st.On("check", refuse)
		r := run(t, st, aggregator.Config{WorkerID: "w"})
		check := func(when string, want bool) {
			t.Helper()
			if got := r.worker(t); got.Stalled != want || got.Lag != 0 || r.agg.Stats().Stalled != want {
				t.Errorf("%s: %+v, want stalled %t and nothing held", when, got, want)
			}
		}
		check("at the start", true)
		st.On("check", nil)
		settle(2 * time.Second)
		check("soon after a check", false)
		st.On("check", refuse)
		settle(10 * time.Second)
		check("soon after the next", true)
		st.On("check", nil)
		settle(2 * time.Second)
		check("at last", false)
		if err := r.finish(); err != nil || !r.agg.Stats().Stalled {
			t.Errorf("stopped: %v, stalled %t", err, r.agg.Stats().Stalled)
		}
	})
}

// A dead letter was set aside days ago. Its replay does not count as lag, by which operators
// scale.
func TestDeadLettersInReplayAreNoLag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		letter := store.DeadLetter{
			Key: "x", Time: time.Now().Add(-time.Hour), Reason: "refused",
			Payload: wire.Append(nil, &wire.Batch{Time: time.Now().Add(-time.Hour), Parts: []wire.Part{anonymous(one("a", 1))}}),
		}
		copied := letter
		copied.Key = store.ReplayKey(letter.Key)
		if err := st.PutDeadLetters(t.Context(), []store.DeadLetter{letter, copied}); err != nil {
			t.Fatal(err)
		}
		st.OnFold(onAdds(func() protocoltest.Answer { return protocoltest.UnknownNotApplied }))
		r := run(t, st, aggregator.Config{WorkerID: "w"})
		settle(time.Minute)
		got := r.agg.Stats()
		if got.Lag != 0 || r.worker(t).Lag != 0 || got.Replaying != 1 || got.ReplayAge < 40*time.Second || got.ReplayAge > time.Minute {
			t.Errorf("lag %s (reported %s), %d letters for %s, want no lag and one letter for some 50 s",
				got.Lag, r.worker(t).Lag, got.Replaying, got.ReplayAge)
		}
		st.OnFold(nil)
		settle(2 * time.Minute)
		if got := r.agg.Stats(); got.Replaying != 0 || got.ReplayAge != 0 || got.Replayed != 1 {
			t.Errorf("afterwards %+v, want nothing in replay", got)
		}
		if err := r.finish(); err != nil && !errors.Is(err, t.Context().Err()) {
			t.Error(err)
		}
	})
}
