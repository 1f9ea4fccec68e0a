package gcppubsub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"cloud.google.com/go/pubsub/v2"
	"github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud"
	"github.com/ThreeDotsLabs/watermill/message"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/backend"
)

// A Bus is one topic, and at most one subscription of it. All methods are safe for concurrent use.
// Close it after use.
type Bus struct {
	cfg       Config
	options   []option.ClientOption
	admin     *pubsub.Client
	publisher *googlecloud.Publisher // nil with ReceiveOnly
	gate      *backend.Gate
	counts    backend.BusCounts
	health    health
	gone      atomic.Bool // Publish got the answer that the topic is gone
	close     func() error
}

var _ backend.Channel = (*Bus)(nil)

// newBus returns a bus without connections.
func newBus(cfg Config) *Bus {
	b := &Bus{cfg: cfg, gate: backend.NewGate("gcppubsub", cfg.Topic)}
	b.close = sync.OnceValue(b.closeOnce)
	return b
}

// Publish sends the messages one after the other and waits for each. To send several at once, call it
// from several goroutines. A call takes at most PublishTimeout. The package comment explains the
// errors.
func (b *Bus) Publish(topic string, messages ...*message.Message) error {
	if b.publisher == nil {
		return errors.New("gcppubsub: opened with ReceiveOnly")
	}
	return b.gate.Publish(topic, func() error { return b.publish(topic, messages) })
}

// publish first waits for a subscription if the topic was gone before: Pub/Sub would accept messages
// without one, and drop them.
func (b *Bus) publish(topic string, messages []*message.Message) error {
	if b.gone.Load() {
		if err := b.checkTopic(b.gate.Life); err != nil {
			return err
		}
		b.gone.Store(false)
	}
	err := b.publisher.Publish(topic, messages...)
	if status.Code(err) == codes.NotFound {
		b.gone.Store(true)
	}
	return b.explain(err, "publish to topic "+b.cfg.topicName())
}

// Subscribe receives messages until ctx ends. The package comment says what happens to messages that
// are here at that time. Subscribe then closes the channel. It also closes the channel when Pub/Sub
// ends the stream for good: subscribe again. There is one subscription at a time.
func (b *Bus) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if b.cfg.Subscription == "" {
		return nil, errors.New("gcppubsub: Subscription is empty: name a subscription")
	}
	return b.gate.Subscribe(ctx, topic, b.subscribe)
}

// Ready returns nil while messages can arrive. Otherwise the error says why not: nothing is subscribed,
// the stream is broken, or the subscription does not answer. A process that only publishes need not
// call it.
func (b *Bus) Ready() error {
	if err := b.gate.Ready(); err != nil {
		return err
	}
	return b.health.err()
}

// Close ends the subscription as the end of its context does, waits for calls of Publish, and
// disconnects. Close the bus after its publisher and aggregator: later calls return
// countmill.ErrClosed. A second call does nothing.
func (b *Bus) Close() error { return b.close() }

func (b *Bus) closeOnce() error {
	errs := []error{b.gate.Close()}
	if b.publisher != nil {
		errs = append(errs, b.publisher.Close())
	}
	if b.admin != nil {
		errs = append(errs, b.admin.Close())
	}
	return errors.Join(errs...)
}

// Stats returns the counts since Open. Pub/Sub reports redeliveries only on a subscription with a dead-letter
// policy, and roughly. It closes streams now and then.
func (b *Bus) Stats() backend.BusStats { return b.counts.Stats() }
