package aggregator_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A testBus delivers the messages of a test. Like Watermill's Google subscriber, it gives back
// all messages that are not settled when the context of Subscribe ends.
type testBus struct {
	out chan *message.Message

	mu     sync.Mutex
	once   bool // messages say that they do not come again
	closed bool
	sent   []*message.Message
}

func newBus() *testBus { return &testBus{out: make(chan *message.Message)} }

func (b *testBus) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, countmill.ErrClosed
	}
	context.AfterFunc(ctx, b.giveBack)
	return b.out, ctx.Err()
}

func (b *testBus) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.sent {
		m.Nack() // has no effect on an acknowledged message
	}
}

func (b *testBus) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	close(b.out)
}

// send delivers a batch of parts, and returns the message.
func (b *testBus) send(t *testing.T, parts ...wire.Part) *message.Message {
	t.Helper()
	return b.sendAt(t, time.Now(), parts...)
}

func (b *testBus) sendAt(t *testing.T, at time.Time, parts ...wire.Part) *message.Message {
	t.Helper()
	return b.sendBytes(t, wire.Append(nil, &wire.Batch{Time: at, Parts: parts}))
}

func (b *testBus) sendBytes(t *testing.T, payload []byte) *message.Message {
	t.Helper()
	m := message.NewMessage("", payload)
	b.deliver(t, m)
	return m
}

func (b *testBus) deliver(t *testing.T, m *message.Message) {
	t.Helper()
	b.mu.Lock()
	b.sent = append(b.sent, m)
	b.mu.Unlock()
	if b.once {
		m.SetContext(wire.DeliverOnce(m.Context()))
	}
	select {
	case b.out <- m:
	case <-time.After(time.Hour):
		t.Fatal("the aggregator does not take the message")
	}
}

func acked(m *message.Message) bool {
	select {
	case <-m.Acked():
		return true
	default:
		return false
	}
}

func nacked(m *message.Message) bool {
	select {
	case <-m.Nacked():
		return true
	default:
		return false
	}
}

// anonymous is a part with a random id.
func anonymous(entries ...wire.Entry) wire.Part { return wire.CutAnonymous(rand.Reader, entries)[0] }

func one(counter string, delta int64) wire.Entry { return wire.Entry{Counter: counter, Delta: delta} }
