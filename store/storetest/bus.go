package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
)

// A Bus is the input of RunBus: both ends of a bus, and the backend's promises beyond the minimum.
type Bus struct {
	Publisher  message.Publisher
	Subscriber message.Subscriber
	// Topic belongs to the test alone.
	Topic string

	// WaitsForAck: Publish returns when the message was settled, with an error after a nack.
	WaitsForAck bool
	// Redelivers: after a nack the message is delivered again.
	Redelivers bool
	// AnswersClosed: Publish on a closed bus returns an error that matches countmill.ErrClosed.
	AnswersClosed bool
	// Payload makes the payload of message n, for a bus that carries batches alone. Default: size bytes,
	// which depend on n.
	Payload func(n, size int) []byte
	// PayloadOnly: neither UUID nor metadata are carried.
	PayloadOnly bool
	// Wait is how long a message may take. Default two minutes: longer than any machine needs.
	Wait time.Duration
}

// RunBus tests that a bus does everything that countmill needs. Each call of open returns a bus with a
// topic of its own; RunBus closes it.
func RunBus(t *testing.T, open func(t *testing.T) Bus) {
	for name, test := range map[string]func(*busTest){
		"ContentIsUnchanged":      (*busTest).contentIsUnchanged,
		"ManyUnackedAtOnce":       (*busTest).manyUnackedAtOnce,
		"AckedIsGone":             (*busTest).ackedIsGone,
		"NackedComesAgain":        (*busTest).nackedComesAgain,
		"ConcurrentPublishers":    (*busTest).concurrentPublishers,
		"CloseEndsTheChannel":     (*busTest).closeEndsTheChannel,
		"PublishAfterCloseErrors": (*busTest).publishAfterCloseErrors,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newBusTest(t, open(t)))
		})
	}
}

// A busTest is one bus with a subscriber.
type busTest struct {
	*testing.T
	Bus
	messages   <-chan *message.Message
	publishing sync.WaitGroup
	closeOnce  sync.Once
}

func newBusTest(t *testing.T, bus Bus) *busTest {
	if bus.Wait == 0 {
		bus.Wait = 2 * time.Minute
	}
	if bus.Payload == nil {
		bus.Payload = anyBytes
	}
	messages, err := bus.Subscriber.Subscribe(t.Context(), bus.Topic)
	if err != nil {
		t.Fatal(err)
	}
	b := &busTest{T: t, Bus: bus, messages: messages}
	t.Cleanup(b.close)
	return b
}

func anyBytes(n, size int) []byte {
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(n + i*7)
	}
	return payload
}

// message n of the test, of at least size bytes.
func (b *busTest) message(n, size int, uuid string) *message.Message {
	return message.NewMessage(uuid, b.Payload(n, size))
}

// name identifies a message at both ends.
func (b *busTest) name(m *message.Message) string {
	if b.PayloadOnly {
		return string(m.Payload)
	}
	return m.UUID
}

func (b *busTest) close() {
	b.closeOnce.Do(func() {
		if err := b.Publisher.Close(); err != nil {
			b.Errorf("closing the publisher: %v", err)
		}
		if err := b.Subscriber.Close(); err != nil {
			b.Errorf("closing the subscriber: %v", err)
		}
	})
	b.publishing.Wait()
}

// publish sends in the background, because a bus may answer only after the ack. It passes the answer to
// check.
func (b *busTest) publish(m *message.Message, check func(error)) {
	b.publishing.Go(func() { check(b.Publisher.Publish(b.Topic, m)) })
}

func (b *busTest) wantNil(err error) {
	if err != nil {
		b.Errorf("Publish: %v", err)
	}
}

func (b *busTest) receive() *message.Message {
	b.Helper()
	select {
	case m, ok := <-b.messages:
		if !ok {
			b.Fatal("the channel was closed")
		}
		return m
	case <-time.After(b.Wait):
		b.Fatalf("no message within %s", b.Wait)
	}
	return nil
}

func (b *busTest) contentIsUnchanged() {
	payload := b.Payload(0, 512<<10)
	sent := message.NewMessage("0123456789abcdef", bytes.Clone(payload))
	sent.Metadata.Set("key", "välue")
	b.publish(sent, b.wantNil)
	m := b.receive()
	if !bytes.Equal(m.Payload, payload) {
		b.Error("the payload has changed")
	}
	if !b.PayloadOnly && (m.UUID != "0123456789abcdef" || m.Metadata.Get("key") != "välue") {
		b.Errorf("got UUID %q and metadata %v", m.UUID, maps.Clone(m.Metadata))
	}
	m.Ack()
	b.publishing.Wait()
}

// manyUnackedAtOnce holds messages as an aggregator does while a window fills.
func (b *busTest) manyUnackedAtOnce() {
	const n = 200
	for i := range n {
		b.publish(b.message(i, 1, fmt.Sprint(i)), b.wantNil)
	}
	held := make(map[string]*message.Message)
	for len(held) < n {
		m := b.receive()
		if held[b.name(m)] != nil && b.WaitsForAck {
			b.Errorf("message %s was delivered again while it was held", m.UUID)
		}
		held[b.name(m)] = m
	}
	for _, m := range held {
		if !m.Ack() {
			b.Errorf("message %s does not take its ack", m.UUID)
		}
	}
	b.publishing.Wait()
}

func (b *busTest) ackedIsGone() {
	b.publish(b.message(1, 0, "gone"), b.wantNil)
	b.receive().Ack()
	b.publishing.Wait()
	select {
	case m := <-b.messages:
		b.Errorf("message %s came again after its ack", m.UUID)
	case <-time.After(300 * time.Millisecond):
	}
}

func (b *busTest) nackedComesAgain() {
	answered := make(chan error, 1)
	sent := b.message(1, 1, "again")
	b.publish(sent, func(err error) { answered <- err })
	b.receive().Nack()
	if b.WaitsForAck && !b.Redelivers {
		if err := <-answered; err == nil || errors.Is(err, countmill.ErrClosed) {
			b.Errorf("nacked: got %v, want an error after which the message is sent again", err)
		}
	}
	if !b.Redelivers {
		return
	}
	m := b.receive()
	if b.name(m) != b.name(sent) || !bytes.Equal(m.Payload, sent.Payload) {
		b.Errorf("got message %q %q after a nack", m.UUID, m.Payload)
	}
	m.Ack()
	b.wantNil(<-answered)
}

func (b *busTest) concurrentPublishers() {
	const publishers, each = 8, 50
	for p := range publishers {
		b.publishing.Go(func() {
			for i := range each {
				b.wantNil(b.Publisher.Publish(b.Topic, b.message(p*each+i, 0, fmt.Sprint(p, "/", i))))
			}
		})
	}
	seen := make(map[string]bool)
	for len(seen) < publishers*each {
		m := b.receive()
		seen[b.name(m)] = true
		m.Ack()
	}
	b.publishing.Wait()
}

// closeEndsTheChannel, even with a held message: a stop in the wrong order is an error, not a hang.
func (b *busTest) closeEndsTheChannel() {
	b.publish(b.message(1, 0, "held"), func(err error) {
		if b.WaitsForAck && !errors.Is(err, countmill.ErrClosed) {
			b.Errorf("Publish of a message that was held at Close: got %v, want ErrClosed", err)
		}
	})
	_ = b.receive()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		b.close()
	}()
	timeout := time.After(b.Wait)
	for {
		select {
		case _, ok := <-b.messages:
			if ok {
				continue
			}
		case <-timeout:
			b.Fatal("the channel is open after Close")
		}
		break
	}
	select {
	case <-closed:
	case <-timeout:
		b.Fatal("Close hangs")
	}
}

func (b *busTest) publishAfterCloseErrors() {
	b.close()
	err := b.Publisher.Publish(b.Topic, b.message(1, 0, "late"))
	if err == nil {
		b.Error("Publish on a closed bus: got nil")
	}
	if b.AnswersClosed && !errors.Is(err, countmill.ErrClosed) {
		b.Errorf("Publish on a closed bus: got %v, want ErrClosed", err)
	}
}
