package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud"
	"github.com/ThreeDotsLabs/watermill/message"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
)

// A subscription passes on the messages of a Watermill subscriber, and ends that subscriber in the
// right order. The Watermill subscriber runs a goroutine for each message, which sends the ack, and the
// message's context ends with that goroutine. So a subscription knows which acks are not sent yet.
type subscription struct {
	b      *Bus
	inner  interface{ Close() error } // this subscription's own Watermill subscriber
	in     <-chan *message.Message
	out    chan *message.Message
	stop   context.Context    // ends when the subscription should end
	cancel context.CancelFunc // of the Watermill subscriber
	failed chan error         // gets the reason when Pub/Sub ends the stream

	mu   sync.Mutex
	held map[*message.Message]context.Context // delivered messages, each with what ends with its goroutine
}

// subscribe makes a Watermill subscriber for each subscription: one cannot receive a second time while
// its first Receive backs off.
func (b *Bus) subscribe(ctx context.Context) (out chan *message.Message, run func(context.Context) error, err error) {
	settings, err := b.lookUp(ctx)
	if err != nil {
		return nil, nil, err
	}
	b.warn(settings)
	s := &subscription{
		b:      b,
		out:    make(chan *message.Message),
		failed: make(chan error, 1),
		held:   make(map[*message.Message]context.Context),
	}
	inner, err := googlecloud.NewSubscriber(b.subscriberConfig(), watchful{newLogger(b.cfg.Logger), s.fail})
	if err != nil {
		return nil, nil, err
	}
	s.inner = inner
	// Not ctx: its end would give back messages whose acks are not sent yet.
	receiving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	timer := time.AfterFunc(callTimeout, cancel)
	if s.in, err = inner.Subscribe(receiving, b.cfg.Topic); err == nil && !timer.Stop() {
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, nil, errors.Join(b.explain(err, "subscription "+b.cfg.subscriptionName()), inner.Close())
	}
	return s.out, s.run, nil
}

func (b *Bus) subscriberConfig() googlecloud.SubscriberConfig {
	watch := option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(b.health.intercept(&b.counts, b.cfg.EmulatorHost != "")))
	return googlecloud.SubscriberConfig{
		GenerateSubscriptionName: func(string) string { return b.cfg.Subscription },
		ProjectID:                b.cfg.Project,
		// lookUp has checked these.
		DoNotCreateSubscriptionIfMissing:        true,
		DoNotCreateTopicIfMissing:               true,
		DoNotEnforceSubscriptionAttachedToTopic: true,
		ReceiveSettings:                         b.cfg.receiveSettings(),
		ClientOptions:                           slices.Concat(b.options, []option.ClientOption{watch}),
		Unmarshaler:                             unmarshaler{topic: b.cfg.topicName(), counts: &b.counts},
	}
}

// fail is called when Watermill's subscriber reports that receiving has ended.
func (s *subscription) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// run delivers messages until stop ends or Pub/Sub has ended the stream. It returns when every message here is settled
// or given back, or after closeTimeout.
func (s *subscription) run(stop context.Context) error {
	s.stop = stop
	defer s.cancel()
	probing, endProbing := context.WithCancel(stop)
	var probes sync.WaitGroup
	probes.Go(func() { s.b.probe(probing) })
	err := s.pump()
	endProbing()
	if err != nil {
		s.b.cfg.Logger.LogAttrs(stop, slog.LevelWarn, "Pub/Sub has ended the stream", slog.Any("err", err))
		s.b.health.ended(err)
	}
	err = errors.Join(err, s.close())
	probes.Wait()
	return err
}

// pump returns nil when the subscription should end, and an error when Pub/Sub has ended it.
func (s *subscription) pump() error {
	for {
		select {
		case m, ok := <-s.in:
			if !ok {
				return errors.New("receiving has ended")
			}
			s.deliver(m)
		case err := <-s.failed:
			return s.b.explain(err, "subscription "+s.b.cfg.subscriptionName())
		case <-s.stop.Done():
			return nil
		}
	}
}

// deliver waits until somebody receives the message, and gives it back if nobody will.
func (s *subscription) deliver(m *message.Message) {
	ctx := m.Context()
	s.track(m, ctx)
	select {
	case s.out <- m:
	case <-ctx.Done(): // the stream has broken
	case <-s.stop.Done():
		m.Nack()
	}
}

// track counts a message as held until its goroutine has ended.
func (s *subscription) track(m *message.Message, ctx context.Context) {
	s.mu.Lock()
	s.held[m] = ctx
	s.mu.Unlock()
	s.b.counts.Held.Add(1)
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		delete(s.held, m)
		s.mu.Unlock()
		if acked(m) {
			s.b.counts.Acks.Add(1)
		} else {
			s.b.counts.Nacks.Add(1)
		}
		s.b.counts.Held.Add(-1)
	})
}

func acked(m *message.Message) bool {
	select {
	case <-m.Acked():
		return true
	default:
		return false
	}
}

// close waits until the given acks are sent, then ends the Watermill subscriber. That gives all other
// messages back and sends its buffers.
func (s *subscription) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	s.passAcks(ctx)
	closed := make(chan error, 1)
	go func() { closed <- s.inner.Close() }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("Pub/Sub did not take the last acks within %s: the latest messages may be delivered again", closeTimeout)
	}
}

// passAcks waits until the goroutines of all messages that were acked before the call have ended.
func (s *subscription) passAcks(ctx context.Context) {
	s.mu.Lock()
	held := maps.Clone(s.held)
	s.mu.Unlock()
	for m, passed := range held {
		if !acked(m) {
			continue
		}
		select {
		case <-passed.Done():
		case <-ctx.Done():
			s.b.counts.AcksLost.Add(1)
		}
	}
}
