package gcppubsub_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/wire"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

// TestDrain stops as an aggregator under load does: it acks the messages that it has committed, and
// ends its subscription at once. None of those messages may be delivered again.
func TestDrain(t *testing.T) {
	t.Parallel()
	host := emulator.PubSub(t)
	for name, byClose := range map[string]bool{"context": false, "close": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := emulator.Project()
			setUp := func(c *gcppubsub.Config) { c.Project, c.MaxOutstanding = id, 1200 }
			stopLoad := flood(t, open(t, host, setUp))
			acked := make(map[string]bool)
			for range 5 {
				drainOnce(t, open(t, host, setUp), acked, byClose)
			}
			stopLoad()
			rest := comeAgain(t, open(t, host, setUp), acked)
			t.Logf("%d acked before a stop, %d others after", len(acked), rest)
		})
	}
}

// flood publishes from several goroutines until it is stopped.
func flood(t *testing.T, bus *gcppubsub.Bus) (stop func()) {
	ctx, cancel := contextOf(t)
	var senders sync.WaitGroup
	for range 20 {
		senders.Go(func() {
			for ctx.Err() == nil {
				publish(t, bus, "", make([]byte, 100))
			}
		})
	}
	return func() {
		cancel()
		senders.Wait()
	}
}

// drainOnce receives messages, acks them together and stops.
func drainOnce(t *testing.T, bus *gcppubsub.Bus, acked map[string]bool, byClose bool) {
	t.Helper()
	ctx, cancel := contextOf(t)
	messages, err := bus.Subscribe(ctx, "increments")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range takeMany(t, messages, 1000) {
		id := m.Metadata.Get(wire.MetaBrokerID)
		if acked[id] {
			t.Errorf("message %s was acked and came again", id)
		}
		acked[id] = true
		m.Ack()
	}
	if !byClose {
		cancel()
	}
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
	until(t, time.Minute, "nothing is held after Close", func() bool { return bus.Stats().Held == 0 })
	if got := bus.Stats(); got.AcksLost > 0 {
		t.Errorf("after Close: %+v", got)
	}
}

// comeAgain receives and counts the remaining messages, for longer than leases and retry delays last.
func comeAgain(t *testing.T, bus *gcppubsub.Bus, acked map[string]bool) (rest int) {
	t.Helper()
	messages := subscribe(t, bus)
	again := 0
	for {
		select {
		case m := <-messages:
			rest++
			if acked[m.Metadata.Get(wire.MetaBrokerID)] {
				again++
			}
			m.Ack()
		case <-time.After(12 * time.Second):
			if again > 0 {
				t.Errorf("%d of %d messages were acked and came again", again, len(acked))
			}
			return rest
		}
	}
}

func takeMany(t *testing.T, messages <-chan *message.Message, n int) []*message.Message {
	t.Helper()
	taken := make([]*message.Message, 0, n)
	for len(taken) < n {
		taken = append(taken, receive(t, messages, 30*time.Second))
	}
	return taken
}
