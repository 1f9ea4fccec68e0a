package aggregator_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// takes reports whether the aggregator would take a message now.
func (r *rig) takes(t *testing.T) bool {
	t.Helper()
	m := message.NewMessage("", []byte("{}"))
	select {
	case r.out <- m:
		return true
	default:
		return false
	}
}

func TestNoMoreIsHeldThanConfigured(t *testing.T) {
	for name, cfg := range map[string]aggregator.Config{
		"messages": {HeldMessages: 10}, "memory": {HeldMemory: 9*1451 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				gate := make(chan struct{})
				st := large(t)
				st.OnFold(func(int, *store.Commit) protocoltest.Answer { <-gate; return protocoltest.OK })
				cfg.CommitTimeout = time.Hour
				r := run(t, st, cfg)
				for i := range 10 {
					r.send(t, anonymous(one(fmt.Sprint("abcde", i), 1)))
				}
				settle(time.Minute)
				if r.takes(t) {
					t.Error("takes an eleventh message")
				}
				close(gate)
				settle(time.Minute)
				if !r.takes(t) {
					t.Error("takes nothing although nothing is held")
				}
			})
		})
	}
}

// afterFirst answers the first call with OK: nothing is taken before the first check.
func afterFirst(answer protocoltest.Answer) func(int) protocoltest.Answer {
	return func(n int) protocoltest.Answer {
		if n == 1 {
			return protocoltest.OK
		}
		return answer
	}
}

func TestNothingIsTakenBeforeTheFirstCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.On("check", protocoltest.Script(protocoltest.SlowNotApplied, protocoltest.UnknownNotApplied))
		r := run(t, st, aggregator.Config{CommitTimeout: 5 * time.Second})
		settle(4 * time.Second)
		if err := r.agg.Ready(); err == nil || r.takes(t) {
			t.Errorf("takes messages of which it does not know whether they are beyond the deduplication window; Ready: %v", err)
		}
		settle(4 * time.Second)
		if err := r.agg.Ready(); err != nil || !r.takes(t) {
			t.Errorf("takes nothing; Ready: %v", err)
		}
	})
}

type closingBus struct{ calls atomic.Int64 }

func (b *closingBus) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	b.calls.Add(1)
	out := make(chan *message.Message)
	close(out)
	return out, nil
}

func TestABusThatEndsAtOnceIsNotRetriedAllTheTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bus := new(closingBus)
		a, err := aggregator.New(bus, large(t), aggregator.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
		if got := bus.calls.Load(); got > 12 {
			t.Errorf("%d subscriptions in 10 s", got)
		}
	})
}

// Nothing is lost either. The log says once that folding pauses where the database is another, and once that it goes on.
func TestNothingIsTakenWhileTheStoreIsUnavailable(t *testing.T) {
	always := func(answer protocoltest.Answer) func(*protocoltest.Store) {
		return func(s *protocoltest.Store) { s.OnFold(func(int, *store.Commit) protocoltest.Answer { return answer }) }
	}
	for name, trouble := range map[string]func(*protocoltest.Store){
		"no answers":         always(protocoltest.UnknownNotApplied),
		"a wrong deployment": always(protocoltest.Deployment),
		"another database":   func(s *protocoltest.Store) { s.On("check", afterFirst(protocoltest.Deployment)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var log strings.Builder
				st := large(t)
				trouble(st)
				r := run(t, st, aggregator.Config{Linger: 15 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}) // the check comes first
				m := r.send(t, anonymous(one("a", 1)))
				settle(10 * time.Minute)
				if r.takes(t) || r.agg.Ready() == nil || acked(m) || st.Counts().Folds > 0 {
					t.Errorf("takes messages or folds (ready: %v, acknowledged: %t)", r.agg.Ready(), acked(m))
				}
				st.OnFold(nil)
				st.On("check", nil)
				settle(time.Minute)
				if err := r.agg.Ready(); err != nil || !acked(m) || st.Total("a") != 1 || len(st.DeadLetters()) > 0 {
					t.Errorf("after recovery: ready %v, acknowledged %t, total %d, dead letters %q", err, acked(m), st.Total("a"), r.reasons())
				}
				if paused, resumed := strings.Count(log.String(), "folding paused"), strings.Count(log.String(), "folding resumed"); name == "another database" && (paused != 1 || resumed != 1) {
					t.Errorf("the log says %d times that folding is paused, and %d times that it goes on; want once:\n%s", paused, resumed, log.String())
				}
			})
		})
	}
}
