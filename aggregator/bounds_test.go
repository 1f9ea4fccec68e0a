package aggregator_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
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
				st.OnFold(func(int, *store.Commit) fakestore.Answer { <-gate; return fakestore.OK })
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
func afterFirst(answer fakestore.Answer) func(int) fakestore.Answer {
	return func(n int) fakestore.Answer {
		if n == 1 {
			return fakestore.OK
		}
		return answer
	}
}

func TestNothingIsTakenBeforeTheFirstCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.On(fakestore.Check, fakestore.Script(fakestore.SlowNotApplied, fakestore.UnknownNotApplied))
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

func TestNothingIsTakenWhileTheStoreIsUnavailable(t *testing.T) {
	for name, trouble := range map[string]func(*fakestore.Store){
		"no answers": func(s *fakestore.Store) {
			s.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.UnknownNotApplied })
		},
		"another database": func(s *fakestore.Store) {
			s.On(fakestore.Check, afterFirst(fakestore.Deployment))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := large(t)
				trouble(st)
				r := run(t, st, aggregator.Config{Linger: 15 * time.Second}) // the check comes first
				m := r.send(t, anonymous(one("a", 1)))
				settle(10 * time.Minute)
				if r.takes(t) || r.agg.Ready() == nil {
					t.Errorf("takes messages; Ready: %v", r.agg.Ready())
				}
				if acked(m) || st.Counts().Folds > 0 {
					t.Error("folds")
				}
				st.OnFold(nil)
				st.On(fakestore.Check, nil)
				settle(time.Minute)
				if err := r.agg.Ready(); err != nil || !acked(m) {
					t.Errorf("after recovery: Ready %v, acknowledged %v", err, acked(m))
				}
			})
		})
	}
}

// With no job left to try, nothing would notice that the store is available again.
func TestAnAggregatorWithNothingLeftToTryTakesAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := windowed(t, time.Hour)
		st.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.Deployment })
		r := run(t, st, aggregator.Config{})
		r.send(t, anonymous(one("a", 1)))
		settle(2 * time.Hour) // it becomes a dead letter
		st.OnFold(nil)
		m := r.send(t, anonymous(one("b", 1)))
		settle(time.Minute)
		if !acked(m) {
			t.Error("not acknowledged")
		}
	})
}

// Jobs that wait for the only shard of a counter must not spin: virtual time would not advance.
func TestJobsWaitForAFreeShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, fakestore.Options{Entities: 25, Shards: 1, Latency: time.Second})
		r := run(t, st, aggregator.Config{Commits: 4})
		settle(2 * time.Minute) // no look-ups any more
		want := r.hot(t, 20)
		settle(time.Minute)
		r.want(t, want)
		if got := st.FoldCalls(); got != 20 {
			t.Errorf("%d commits, want 20", got)
		}
	})
}

// Most duplicates come when a dead aggregator's messages are delivered again.
func TestMarkersAreLookedUpFirstAfterAStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		first := run(t, st, aggregator.Config{})
		p := anonymous(one("a", 1))
		first.send(t, p)
		settle(time.Second)
		second := run(t, st, aggregator.Config{})
		m := second.send(t, p, anonymous(one("b", 1)))
		settle(time.Second)
		if got := st.Counts().Collisions; got > 0 || !acked(m) {
			t.Errorf("%d commits met a marker, acknowledged %v", got, acked(m))
		}
		second.want(t, map[string]int64{"a": 1, "b": 1})
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

func TestRunOutlivesAWriteOfDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		var open atomic.Bool
		st.On(fakestore.PutDeadLetters, func(int) fakestore.Answer {
			open.Store(true)
			time.Sleep(5 * time.Second)
			open.Store(false)
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{DrainTimeout: time.Second})
		m := r.sendBytes(t, []byte("garbage"))
		settle(time.Second)
		if err := r.finish(); err == nil || acked(m) || !nacked(m) {
			t.Errorf("Run returned %v, acknowledged %v, given back %v", err, acked(m), nacked(m))
		}
		if open.Load() {
			t.Error("Run returned while dead letters were being written")
		}
	})
}

func TestNothingIsTriedAgainOnAnotherDatabase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.UnknownNotApplied })
		st.On(fakestore.Check, afterFirst(fakestore.Deployment))
		r := run(t, st, aggregator.Config{})
		r.send(t, anonymous(one("a", 1)))
		settle(11 * time.Second)
		before := st.FoldCalls()
		settle(10 * time.Minute)
		if got := st.FoldCalls() - before; got > 0 {
			t.Errorf("%d commits after the check failed", got)
		}
	})
}

// Without markers there is nothing to write for parts that cancel out.
func TestUnmarkedPartsThatCancelOutAreNotCommitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, certain(t), aggregator.Config{})
		a := r.send(t, anonymous(one("a", 5)))
		b := r.send(t, anonymous(one("a", -5)))
		settle(time.Minute)
		if got := r.store.FoldCalls(); got > 0 || !acked(a) || !acked(b) {
			t.Errorf("%d commits, acknowledged %v and %v, want none and both", got, acked(a), acked(b))
		}
	})
}
