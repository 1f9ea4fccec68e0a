package publisher

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeBus keeps the parts that it took, by id, as an aggregator would.
type fakeBus struct {
	t testing.TB
	// answer decides what happens to a message: whether it is taken, and the error.
	answer func(call int, m *message.Message) (taken bool, err error)

	mu       sync.Mutex
	calls    int
	messages int
	bytes    int64
	payloads map[string][]byte // by UUID, of every call
	batches  []*wire.Batch     // taken, duplicates too
	parts    map[wire.PartID]wire.Part
}

func newBus(t testing.TB) *fakeBus {
	leave2000()
	return &fakeBus{t: t, payloads: map[string][]byte{}, parts: map[wire.PartID]wire.Part{}}
}

func (b *fakeBus) Publish(topic string, ms ...*message.Message) error {
	if len(ms) != 1 {
		b.t.Errorf("%d messages in a call, want 1", len(ms))
	}
	m := ms[0]
	b.mu.Lock()
	call, answer := b.calls, b.answer
	b.calls++
	if old, ok := b.payloads[m.UUID]; ok && !bytes.Equal(old, m.Payload) {
		b.t.Errorf("message %s was sent again with other bytes", m.UUID)
	}
	b.payloads[m.UUID] = bytes.Clone(m.Payload)
	b.mu.Unlock()
	taken, err := true, error(nil)
	if answer != nil {
		taken, err = answer(call, m)
	}
	if taken {
		b.take(m.Payload)
	}
	return err
}

func (b *fakeBus) take(payload []byte) {
	batch, err := wire.Decode(payload)
	if err != nil {
		b.t.Errorf("batch does not decode: %v", err)
		return
	}
	if len(payload) > wire.MaxBatch {
		b.t.Errorf("batch of %d bytes", len(payload))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages++
	b.bytes += int64(len(payload))
	b.batches = append(b.batches, batch)
	for _, p := range batch.Parts {
		b.parts[p.ID] = p
	}
}

// totals sums distinct parts.
func (b *fakeBus) totals() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	sums := map[string]int64{}
	for _, p := range b.parts {
		for _, e := range p.Entries {
			if sums[e.Counter] += e.Delta; sums[e.Counter] == 0 {
				delete(sums, e.Counter)
			}
		}
	}
	return sums
}

func (b *fakeBus) wantTotals(want map[string]int64) {
	b.t.Helper()
	if got := b.totals(); !maps.Equal(got, want) {
		b.t.Errorf("totals on the bus: got %v, want %v", got, want)
	}
}

// blockUntil makes every call wait for the channel, or for the message's context.
func (b *fakeBus) blockUntil(release <-chan struct{}) {
	b.answer = func(_ int, m *message.Message) (bool, error) {
		select {
		case <-release:
			return true, nil
		case <-m.Context().Done():
			return false, m.Context().Err()
		}
	}
}

// leave2000 sleeps until a time that a clock can show: bubbles of testing/synctest begin in the
// year 2000.
func leave2000() { time.Sleep(time.Until(clock.Earliest)) }

func open(t testing.TB, bus Bus, cfg Config) *Publisher {
	t.Helper()
	leave2000()
	p, err := New(bus, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func closeNow(t testing.TB, p *Publisher) {
	t.Helper()
	if err := p.Close(context.Background()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func inc(counter string, delta int64) countmill.Increment {
	return countmill.Increment{Counter: counter, Delta: delta}
}
