package gcppubsub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"cloud.google.com/go/pubsub/v2"
	"github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud"
	"github.com/ThreeDotsLabs/watermill/message"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill"
)

// A Bus is one topic, and at most one subscription of it. All methods are safe for concurrent use.
// Close it after use.
type Bus struct {
	cfg       Config
	options   []option.ClientOption
	admin     *pubsub.Client
	publisher *googlecloud.Publisher // nil with ReceiveOnly
	stats     stats
	health    health
	gone      atomic.Bool // Publish got the answer that the topic is gone

	life context.Context // ends with Close
	end  context.CancelFunc

	mu         sync.Mutex // guards the fields below
	closed     bool
	publishing sync.WaitGroup // added to only while not closed
	receiving  chan struct{}  // the current subscription's: closed when it has ended
	endErr     error          // the error with which the latest one ended
	closing    sync.Once
	closeErr   error
}

var (
	_ message.Publisher  = (*Bus)(nil)
	_ message.Subscriber = (*Bus)(nil)
)

// Publish sends the messages one after the other and waits for each. To send several at once, call it
// from several goroutines. A call takes at most PublishTimeout. The package comment explains the
// errors.
func (b *Bus) Publish(topic string, messages ...*message.Message) error {
	if err := b.checkName(topic); err != nil {
		return err
	}
	if b.publisher == nil {
		return errors.New("gcppubsub: opened with ReceiveOnly")
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return fmt.Errorf("gcppubsub: %w", countmill.ErrClosed)
	}
	b.publishing.Add(1)
	b.mu.Unlock()
	defer b.publishing.Done()
	if err := b.publish(topic, messages); err != nil {
		return fmt.Errorf("gcppubsub: %w", err)
	}
	return nil
}

// publish first waits for a subscription if the topic was gone before: Pub/Sub would accept messages
// without one, and drop them.
func (b *Bus) publish(topic string, messages []*message.Message) error {
	if b.gone.Load() {
		if err := b.checkTopic(b.life); err != nil {
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

func (b *Bus) checkName(topic string) error {
	if topic != b.cfg.Topic {
		return fmt.Errorf("gcppubsub: this bus carries topic %q, not %q", b.cfg.Topic, topic)
	}
	return nil
}

// Subscribe receives messages until ctx ends. The package comment says what happens to messages that
// are here at that time. Subscribe then closes the channel. It also closes the channel when Pub/Sub
// ends the stream for good: subscribe again. There is one subscription at a time.
func (b *Bus) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := b.checkName(topic); err != nil {
		return nil, err
	}
	if b.cfg.Subscription == "" {
		return nil, errors.New("gcppubsub: Subscription is empty: name a subscription")
	}
	ended, err := b.claim()
	if err != nil {
		return nil, err
	}
	s, err := b.subscribe(ctx)
	if err != nil {
		err = fmt.Errorf("gcppubsub: %w", err)
		b.release(ended, err)
		return nil, err
	}
	go func() {
		err := s.run()
		defer close(s.out) // last, because a receiver of the close may subscribe again
		b.release(ended, err)
	}()
	return s.out, nil
}

// claim reserves the place of the one subscription.
func (b *Bus) claim() (ended chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, fmt.Errorf("gcppubsub: %w", countmill.ErrClosed)
	case b.receiving != nil:
		return nil, errors.New("gcppubsub: this bus has a subscription already; one is enough, because Pub/Sub shares messages among processes")
	}
	b.receiving = make(chan struct{})
	return b.receiving, nil
}

func (b *Bus) release(ended chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.receiving, b.endErr = nil, err
	close(ended)
}

// Ready returns nil while messages can arrive. Otherwise the error says why not: nothing is subscribed,
// the stream is broken, or the subscription does not answer. A process that only publishes need not
// call it.
func (b *Bus) Ready() error {
	b.mu.Lock()
	closed, receiving, endErr := b.closed, b.receiving != nil, b.endErr
	b.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("gcppubsub: %w", countmill.ErrClosed)
	case !receiving && endErr != nil:
		return endErr
	case !receiving:
		return errors.New("gcppubsub: not subscribed")
	}
	return b.health.err()
}

// Close ends the subscription as the end of its context does, waits for calls of Publish, and
// disconnects. Close the bus after its publisher and aggregator: later calls return
// countmill.ErrClosed. A second call does nothing.
func (b *Bus) Close() error {
	b.closing.Do(func() { b.closeErr = b.close() })
	return b.closeErr
}

func (b *Bus) close() error {
	b.mu.Lock()
	b.closed = true
	receiving := b.receiving
	b.mu.Unlock()
	b.end()
	var errs []error
	if receiving != nil {
		<-receiving
		b.mu.Lock()
		errs = append(errs, b.endErr)
		b.mu.Unlock()
	}
	b.publishing.Wait()
	if b.publisher != nil {
		errs = append(errs, b.publisher.Close())
	}
	if b.admin != nil {
		errs = append(errs, b.admin.Close())
	}
	return errors.Join(errs...)
}
