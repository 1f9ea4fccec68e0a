package gcppubsub_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// A suiteBus gives every topic of the suite a bus of its own, and every Subscribe too: a Bus has one
// subscription.
type suiteBus struct {
	t       *testing.T
	host    string
	project string

	mu     sync.Mutex
	closed bool
	topics map[string]*gcppubsub.Bus
	all    []*gcppubsub.Bus
}

func (s *suiteBus) open(topic string, receiveOnly bool) (*gcppubsub.Bus, error) {
	bus, err := gcppubsub.Open(context.Background(), gcppubsub.Config{
		Project: s.project, Topic: topic, Subscription: topic, EmulatorHost: s.host, ReceiveOnly: receiveOnly,
	})
	if err == nil {
		s.all = append(s.all, bus)
	}
	return bus, err
}

// Publish opens a bus for a new topic.
func (s *suiteBus) Publish(topic string, messages ...*message.Message) error {
	s.mu.Lock()
	bus, ok := s.topics[topic]
	if !ok {
		var err error
		if s.closed {
			err = errors.New("closed")
		} else if bus, err = s.open(topic, false); err == nil {
			s.topics[topic] = bus
		}
		if err != nil {
			s.mu.Unlock()
			return err
		}
	}
	s.mu.Unlock()
	return bus.Publish(topic, messages...)
}

// Subscribe opens a bus.
func (s *suiteBus) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("closed")
	}
	bus, err := s.open(topic, true)
	if err != nil {
		return nil, err
	}
	return bus.Subscribe(ctx, topic)
}

// SubscribeInitialize makes topic and subscription, because the suite publishes first.
func (s *suiteBus) SubscribeInitialize(topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.open(topic, false)
	return err
}

// Close closes them all.
func (s *suiteBus) Close() error {
	s.mu.Lock()
	s.closed = true
	all := s.all
	s.all = nil
	s.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, bus := range all {
		wg.Go(func() { errs[i] = bus.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TestWatermillSuite runs Watermill's own conformance tests.
func TestWatermillSuite(t *testing.T) {
	longtest.Only(t, "takes a minute")
	host := emulator.PubSub(t)
	newBus := func(t *testing.T, project string) *suiteBus {
		return &suiteBus{t: t, host: host, project: project, topics: make(map[string]*gcppubsub.Bus)}
	}
	project := emulator.Project() // the suite chooses topics
	tests.TestPubSub(t, tests.Features{
		ConsumerGroups:      false, // a group is a subscription, which the configuration names
		ExactlyOnceDelivery: false,
		GuaranteedOrder:     false,
		Persistent:          true,
		GenerateTopicFunc:   func(tctx tests.TestContext) string { return "topic-" + string(tctx.TestID) },
	}, func(t *testing.T) (message.Publisher, message.Subscriber) {
		return newBus(t, project), newBus(t, project)
	}, nil)
}
