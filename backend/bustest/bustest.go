// Package bustest tests a bus: all that countmill needs of one. A program with a bus of its own runs it too:
//
//	func TestBus(t *testing.T) {
//		bustest.Run(t, func(t *testing.T) bustest.Bus {
//			return bustest.Bus{Publisher: newPublisher(t), Subscriber: newSubscriber(t), Topic: "increments", Redelivers: true}
//		})
//	}
//
// Each test is a promise of the bus:
//
//	test                      promise                                        without it
//	ContentIsUnchanged        a message of 512 KiB arrives as it was         batches become dead letters
//	ManyUnackedAtOnce         messages come before earlier ones are acked    a commit has one message: slow (AtOnce)
//	HeldStays                 a held message is not delivered again          work is repeated
//	AckedIsGone               an acked message is not delivered again        work is repeated
//	NackedComesAgain          a nacked message is delivered again, with      increments are lost; messages of other
//	                          the same id of the broker                      programs count twice
//	ConcurrentPublishers      several calls of Publish at once               increments are lost
//	CloseEndsTheChannel       Close ends, also while messages are held       a process does not stop
//	PublishAfterCloseErrors   Publish fails after Close                      increments are lost
//
// Repeated work makes no total wrong: the store counts each part once. Tests cannot see three promises. Publish
// returns nil only when the broker keeps the message, also through a crash. A message that was not acked
// comes again, however long that takes and whoever held it. After any error but countmill.ErrClosed the
// message may have been sent.
package bustest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A Bus is the input of Run: both ends of a bus, and the backend's promises beyond the minimum.
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
	// AtOnce is how many messages the bus delivers before the first is settled. countmill counts right with
	// one, but then each of its commits has one message. Default 200.
	AtOnce int
	// Lease is how long the broker waits for an ack before it delivers a message again. HeldStays holds
	// one for three times as long. Default 0: for ever.
	Lease time.Duration
	// PayloadOnly: neither UUID nor metadata are carried.
	PayloadOnly bool
	// Wait is how long a message may take. Default two minutes: longer than any machine needs.
	Wait time.Duration
}

// Run tests that a bus does everything that countmill needs. Each call of open returns a bus with a
// topic of its own; Run closes it.
func Run(t *testing.T, open func(t *testing.T) Bus) {
	for name, test := range map[string]func(*busTest){
		"ContentIsUnchanged":      (*busTest).contentIsUnchanged,
		"ManyUnackedAtOnce":       (*busTest).manyUnackedAtOnce,
		"HeldStays":               (*busTest).heldStays,
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
	n := cmp.Or(b.AtOnce, 200)
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

// heldStays holds a message for longer than the broker waits for acks.
func (b *busTest) heldStays() {
	b.publish(b.message(1, 1, "held"), b.wantNil)
	m := b.receive()
	b.nothing(3*b.Lease, "while it was held")
	m.Ack()
	b.publishing.Wait()
}

// nothing fails if a message comes within d.
func (b *busTest) nothing(d time.Duration, when string) {
	b.Helper()
	select {
	case m := <-b.messages:
		b.Errorf("message %s came again %s", m.UUID, when)
	case <-time.After(d):
	}
}

func (b *busTest) ackedIsGone() {
	b.publish(b.message(1, 0, "gone"), b.wantNil)
	b.receive().Ack()
	b.publishing.Wait()
	b.nothing(300*time.Millisecond, "after its ack")
}

func (b *busTest) nackedComesAgain() {
	answered := make(chan error, 1)
	sent := b.message(1, 1, "again")
	b.publish(sent, func(err error) { answered <- err })
	first := b.receive()
	first.Nack()
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
	for _, key := range []string{wire.MetaBrokerID, wire.MetaPublished, wire.MetaTopic} {
		if got, want := m.Metadata.Get(key), first.Metadata.Get(key); got != want {
			b.Errorf("%s is %q after a nack, and was %q", key, got, want)
		}
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
