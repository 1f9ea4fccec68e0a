package aggregator_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// untilAcked is the time from the oldest increment of a message to its acknowledgement.
func untilAcked(t *testing.T, m *message.Message, born time.Time) time.Duration {
	t.Helper()
	select {
	case <-m.Acked():
	case <-time.After(time.Hour):
		t.Fatal("not acknowledged")
	}
	return time.Since(born)
}

// The window compensates for the time that publisher, bus and store take.
func TestIncrementsAreCountedJustWithinTheBudget(t *testing.T) {
	const budget = 2 * time.Second
	for name, c := range map[string]struct {
		latency time.Duration // of the store
		age     time.Duration // of the delivered messages
		offset  time.Duration // of the store's clock
	}{
		"young":                       {10 * time.Millisecond, 0, 0},
		"old":                         {10 * time.Millisecond, 1500 * time.Millisecond, 0},
		"a slow store":                {400 * time.Millisecond, 500 * time.Millisecond, 0},
		"the store's clock is ahead":  {10 * time.Millisecond, 500 * time.Millisecond, 30 * time.Second},
		"the store's clock is behind": {10 * time.Millisecond, 500 * time.Millisecond, -30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := strict(t, protocoltest.Options{Latency: c.latency, ClockOffset: c.offset})
				r := run(t, st, aggregator.Config{CountWithin: budget})
				settle(2 * time.Minute)
				late := int64(0)
				for i := range 40 {
					if i == 20 { // it knows how long the store takes
						late = r.agg.Stats().Late
					}
					born := time.Now().Add(-c.age)
					m := r.sendAt(t, born.Add(c.offset), anonymous(one("a", 1)))
					got := untilAcked(t, m, born)
					if i >= 20 && (got > budget || got < budget*8/10) {
						t.Fatalf("message %d: counted after %s, want just below %s", i, got, budget)
					}
				}
				if s := r.agg.Stats(); s.Late != late || s.Widened != 0 {
					t.Errorf("%d more parts are late, windows are widened by %s", s.Late-late, s.Widened)
				}
			})
		})
	}
}

// An increment cannot be younger than its message, even if its publisher's clock is ahead.
func TestAPublishersClockThatIsAheadBuysNoTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{CountWithin: time.Second})
		settle(2 * time.Minute)
		published := time.Now().Add(-500 * time.Millisecond)
		m := message.NewMessage("", wire.Append(nil, &wire.Batch{Time: time.Now().Add(time.Hour), Parts: []wire.Part{anonymous(one("a", 1))}}))
		m.Metadata.Set(wire.MetaPublished, published.Format(time.RFC3339Nano))
		r.out <- m
		if got := untilAcked(t, m, published); got > time.Second {
			t.Errorf("counted %s after it was published, want within a second", got)
		}
		r.sent = append(r.sent, m)
	})
}

// After an outage every message is too late. They must not be folded one by one.
func TestABacklogIsFoldedInLargeCommits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, strict(t, protocoltest.Options{Latency: time.Millisecond}), aggregator.Config{CountWithin: time.Second})
		settle(2 * time.Minute)
		const messages = 2000
		born := time.Now().Add(-time.Hour)
		for range messages {
			r.sendAt(t, born, anonymous(one("a", 1)))
			time.Sleep(time.Millisecond)
		}
		settle(time.Minute)
		r.want(t, map[string]int64{"a": messages})
		if got := r.store.FoldCalls(); got > messages/40 {
			t.Errorf("%d commits for %d messages, a thousand a second", got, messages)
		}
		if s := r.agg.Stats(); s.Late != messages {
			t.Errorf("%d parts are late, want all %d", s.Late, messages)
		}
	})
}

// A window does not wait if the bound of held messages is reached.
func TestAWindowDoesNotWaitAtTheBoundOfHeldMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{CountWithin: time.Minute, HeldMessages: 3})
		settle(2 * time.Minute)
		began := time.Now()
		for range 3 {
			m := r.send(t, anonymous(one("a", 1)))
			defer func() {
				if !acked(m) {
					t.Error("not acknowledged")
				}
			}()
		}
		settle(time.Second)
		r.want(t, map[string]int64{"a": 3})
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// Ten aggregators try to commit to one counter five times a second each, but its store takes five
// commits a second in all. They have to adapt: windows widen, and few commits fail.
func TestWindowsWidenIfTheStoreIsTooSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const aggregators, gap = 10, 200 * time.Millisecond
		st := protocoltest.New(protocoltest.Options{NeedRecords: true, Latency: 10 * time.Millisecond, Errorf: t.Errorf})
		var mu sync.Mutex
		var free time.Time // when the waiting commits have ended
		var tries, taken int
		st.OnFold(func(int, *store.Commit) protocoltest.Answer {
			mu.Lock()
			defer mu.Unlock()
			tries++
			if time.Until(free) > 3*gap {
				return protocoltest.ContendedNotApplied
			}
			taken++
			if free = free.Add(gap); free.Before(time.Now()) {
				free = time.Now()
			}
			return protocoltest.OK
		})
		bus, err := inproc.New(inproc.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		for range aggregators {
			agg, err := aggregator.New(bus, st, aggregator.Config{CountWithin: 200 * time.Millisecond, HeldMessages: 1000})
			if err != nil {
				t.Fatal(err)
			}
			ended.Go(func() {
				if err := agg.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		p, err := publisher.New(bus, publisher.Config{Linger: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		const messages = 120 * 100
		for i := range messages {
			if i == messages/4 { // by now they know
				mu.Lock()
				t.Logf("before: %d commits tried, %d taken", tries, taken)
				tries, taken = 0, 0
				mu.Unlock()
			}
			if err := p.Add("hot", 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		mu.Lock()
		share := 1 - float64(taken)/float64(tries)
		t.Logf("after that %d, %d taken: %.0f%% failed", tries, taken, 100*share)
		if most := 90 * time.Second / gap; share > 0.3 || taken < int(most)*2/3 {
			t.Errorf("%d of %d commits were taken, want more than 70%% of them and most of the %d that the store takes", taken, tries, most)
		}
		mu.Unlock()
		st.OnFold(nil)
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
		settle(5 * time.Minute)
		if got := st.Total("hot"); got != messages {
			t.Errorf("%d increments are counted, want %d", got, messages)
		}
		cancel()
		ended.Wait()
		if err := bus.Close(); err != nil {
			t.Error(err)
		}
	})
}
