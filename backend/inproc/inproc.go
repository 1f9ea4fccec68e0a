package inproc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/semaphore"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// messageCost is about the memory of a message besides its payload: the envelope, its place in the
// queue and the goroutine that waits for its ack.
const messageCost = 4 << 10

// A Config says how a Bus delivers. The zero value works.
type Config struct {
	// WaitForAck makes Publish return when the message was acked. Default false.
	WaitForAck bool

	// MaxBytes is about the most memory of unsettled messages. A larger message is accepted when it is
	// the only one. Default 256 MiB.
	MaxBytes int64

	// Logger gets a line when Close loses messages. Default discards.
	Logger *slog.Logger
}

// A Bus connects publishers and subscribers of one process. All methods are safe for concurrent use.
type Bus struct {
	cfg   Config
	room  *semaphore.Weighted // of MaxBytes
	life  context.Context     // ends with Close
	end   context.CancelFunc
	tasks sync.WaitGroup // subscriptions, unsettled deliveries, and messages whose publisher does not wait; added to only while not closed

	mu      sync.Mutex // guards the fields below
	closed  bool
	offers  map[string]chan *delivery // by topic
	waiting map[*delivery]bool        // that no subscriber has taken
}

// A delivery is a message until it is settled.
type delivery struct {
	msg   *message.Message
	since time.Time
	from  context.Context // the published message's context, if its publisher waits for the ack
	done  chan error      // gets the outcome of each offer that a subscription took; room for one
}

var (
	_ message.Publisher  = (*Bus)(nil)
	_ message.Subscriber = (*Bus)(nil)
)

// errNacked makes a publisher send the message again.
var errNacked = errors.New("inproc: the subscriber refused the message; it was not applied")

// errNotTaken means that a subscription ended before its subscriber took the message.
var errNotTaken = errors.New("inproc: the subscription ended")

// New returns an open bus.
func New(cfg Config) (*Bus, error) {
	if cfg.MaxBytes < 0 {
		return nil, fmt.Errorf("inproc: MaxBytes must not be negative, got %d", cfg.MaxBytes)
	}
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 256<<20)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Bus{cfg: cfg, room: semaphore.NewWeighted(cfg.MaxBytes), offers: make(map[string]chan *delivery), waiting: make(map[*delivery]bool)}
	b.life, b.end = context.WithCancel(context.Background())
	return b, nil
}

// Publish hands messages over one after the other, and stops at the first error. The package comment
// has the table of results. A call may block: for room, and with WaitForAck for the ack.
func (b *Bus) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := b.publish(topic, m); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bus) publish(topic string, m *message.Message) error {
	size := min(int64(len(m.Payload))+messageCost, b.cfg.MaxBytes)
	if err := b.takeRoom(m.Context(), size); err != nil {
		return err
	}
	release := func() { b.room.Release(size) }
	d := &delivery{msg: m.Copy(), since: time.Now(), from: context.Background(), done: make(chan error, 1)}
	if !b.cfg.WaitForAck {
		return b.start(func() {
			for b.deliver(b.life, topic, d) != nil && b.life.Err() == nil {
			}
			release()
		})
	}
	d.from = m.Context()
	err := b.deliver(m.Context(), topic, d)
	if errors.Is(err, countmill.ErrOutcomeUnknown) { // a subscriber holds it
		_ = b.start(func() { <-d.done; release() })
	} else {
		release()
	}
	return err
}

// start runs a task unless the bus is closed.
func (b *Bus) start(task func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("inproc: %w", countmill.ErrClosed)
	}
	b.tasks.Go(task)
	return nil
}

// takeRoom waits for room.
func (b *Bus) takeRoom(ctx context.Context, size int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	err := b.room.Acquire(ctx, size)
	switch {
	case b.life.Err() != nil:
		return fmt.Errorf("inproc: %w", countmill.ErrClosed)
	case err != nil:
		return fmt.Errorf("%w: inproc: no room: %w", countmill.ErrUnavailable, context.Cause(ctx))
	}
	return nil
}

// deliver offers a message until a subscriber has taken it, and returns its outcome. If ctx ends while no subscriber holds it, it is
// taken back.
func (b *Bus) deliver(ctx context.Context, topic string, d *delivery) error {
	offers := b.wait(topic, d)
	defer b.taken(d)
	for {
		select {
		case offers <- d:
		case <-ctx.Done():
			return fmt.Errorf("%w: inproc: no subscriber took the message: %w", countmill.ErrUnavailable, context.Cause(ctx))
		case <-b.life.Done():
			return fmt.Errorf("inproc: no subscriber took the message: %w", countmill.ErrClosed)
		}
		select {
		case err := <-d.done:
			if !errors.Is(err, errNotTaken) {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: inproc: a subscriber holds the message: %w", countmill.ErrOutcomeUnknown, context.Cause(ctx))
		}
	}
}

// wait returns the channel on which to offer a message, which waits from now on.
func (b *Bus) wait(topic string, d *delivery) chan *delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[d] = true
	return b.offersLocked(topic)
}

func (b *Bus) offersLocked(topic string) chan *delivery {
	if b.offers[topic] == nil {
		b.offers[topic] = make(chan *delivery)
	}
	return b.offers[topic]
}

// taken notes that a message does not wait any more.
func (b *Bus) taken(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, d)
}

// Unseen returns the age of the oldest message that no subscriber has taken, 0 if there is none.
func (b *Bus) Unseen() (oldest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for d := range b.waiting {
		oldest = max(oldest, time.Since(d.since))
	}
	return oldest
}

// Close ends all subscriptions and closes their channels. Waiting and later calls of Publish and
// Subscribe return an error that matches countmill.ErrClosed. Close the bus after its publisher and its
// subscriber: an unsettled message has an unknown outcome. A second call does nothing.
func (b *Bus) Close() error {
	b.mu.Lock()
	lost := len(b.waiting)
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.tasks.Wait()
	if lost > 0 && !b.cfg.WaitForAck {
		b.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "bus closed with messages that no subscriber took", slog.Int("messages", lost))
	}
	return nil
}

// Subscribe delivers the topic's messages until ctx ends or the bus is closed, then closes the channel.
// The end of ctx also ends the contexts of the messages: settle the ones you hold before. One message may wait for each
// subscriber to receive, while others go to the other subscribers.
func (b *Bus) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	b.mu.Lock()
	offers := b.offersLocked(topic)
	b.mu.Unlock()
	err := b.start(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.life, cancel)()
		b.pump(ctx, offers, out)
	})
	return out, err
}

// pump is the only sender on the subscriber's channel, and closes it.
func (b *Bus) pump(ctx context.Context, offers <-chan *delivery, out chan<- *message.Message) {
	defer close(out)
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-offers:
			m := d.msg.Copy() // a message lives for one delivery
			held, release := context.WithCancel(ctx)
			m.SetContext(delivered(held, d.from))
			select {
			case out <- m:
				b.taken(d)
				b.tasks.Go(func() {
					defer release()
					d.done <- outcome(ctx, m)
				})
			case <-ctx.Done():
				release()
				d.done <- errNotTaken
				return
			}
		}
	}
}

// delivered is the context of a delivery. A batch that another process may send again needs its
// markers, although this bus delivers it once.
func delivered(held, published context.Context) context.Context {
	ctx := wire.PassReply(held, published)
	if wire.OfferedOnce(published) {
		ctx = wire.DeliverOnce(ctx)
	}
	return ctx
}

// outcome waits until a message is settled or its subscription ends. An ack counts even if the subscription ended at the same moment.
func outcome(ctx context.Context, m *message.Message) error {
	select {
	case <-m.Acked():
	case <-m.Nacked():
	case <-ctx.Done():
	}
	select {
	case <-m.Acked():
		return nil
	default:
	}
	select {
	case <-m.Nacked():
		return errNacked
	default:
		return fmt.Errorf("inproc: the subscriber ended without settling the message: %w", countmill.ErrClosed)
	}
}
