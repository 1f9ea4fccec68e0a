package gcppubsub

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/backend"
)

// An innerFake records when the Watermill subscriber is closed.
type innerFake struct {
	closed bool
	hangs  <-chan struct{}
}

func (i *innerFake) Close() error {
	i.closed = true
	if i.hangs != nil {
		<-i.hangs
	}
	return nil
}

func newSubscription(inner *innerFake) *subscription {
	b := &Bus{cfg: Config{}.withDefaults()}
	return &subscription{b: b, inner: inner, held: make(map[*message.Message]context.Context)}
}

// hold makes a message whose goroutine ends when passed is called.
func (s *subscription) hold() (m *message.Message, passed context.CancelFunc) {
	m = message.NewMessage("", nil)
	ctx, passed := context.WithCancel(context.Background())
	s.track(m, ctx)
	return m, passed
}

// TestNothingIsKeptTwice: Pub/Sub's client keeps a message until its ack.
func TestNothingIsKeptTwice(t *testing.T) {
	t.Parallel()
	got := &pubsub.Message{ID: "7", Data: []byte("x"), Attributes: map[string]string{"a": "b"}}
	m, err := unmarshaler{counts: &backend.BusCounts{}}.Unmarshal(got)
	if err != nil || string(m.Payload) != "x" || m.Metadata.Get("a") != "b" {
		t.Errorf("got %+v, %v", m, err)
	}
	if got.Data != nil || got.Attributes != nil {
		t.Errorf("the client keeps %d bytes and %v", len(got.Data), got.Attributes)
	}
}

// TestAckWins: when a message's goroutine sees an ack and the subscriber's end at once, Watermill
// chooses at random. So the subscriber must not end before the ack is sent.
func TestAckWins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &innerFake{}
		s := newSubscription(inner)
		acked, passed := s.hold()
		acked.Ack()
		_, unsettled := s.hold() // an unsettled message does not delay the end
		defer unsettled()
		done := make(chan error, 1)
		go func() { done <- s.close() }()
		time.Sleep(closeTimeout / 2)
		synctest.Wait()
		if inner.closed {
			t.Fatal("the subscriber was closed with an ack under way")
		}
		passed()
		if err := <-done; err != nil || !inner.closed {
			t.Errorf("got %v, closed %t", err, inner.closed)
		}
		synctest.Wait()
		if got := s.b.Stats(); got.Acks != 1 || got.AcksLost != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestCloseIsBounded, both with acks that are never sent and with a server that hangs.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		s := newSubscription(&innerFake{hangs: hang})
		m, passed := s.hold()
		defer passed()
		m.Ack()
		begin := time.Now()
		wantMention(t, s.close(), "within 10s")
		if took := time.Since(begin); took > closeTimeout {
			t.Errorf("took %s", took)
		}
		if got := s.b.Stats().AcksLost; got != 1 {
			t.Errorf("got %d acks lost, want 1", got)
		}
	})
}
