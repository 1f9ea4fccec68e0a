package inproc

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
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
	life  context.Context // ends with Close
	end   context.CancelFunc
	tasks sync.WaitGroup // subscriptions, and unsettled deliveries

	mu     sync.Mutex // guards the fields below
	closed bool
	topics map[string]*topic
	bytes  int64
	room   chan struct{} // closed when bytes shrinks, then replaced
}

// A topic is a queue of messages that no subscriber holds.
type topic struct {
	line          *list.List      // of *delivery
	subscriptions []*subscription // replaced, never changed
	pumping       bool            // whether pump runs
	offered       *delivery       // the message that pump offers; nil if there is none
	wake          chan struct{}   // wakes pump after a change; room for one
}

// A delivery is a message until it is settled.
type delivery struct {
	msg   *message.Message
	topic *topic
	size  int64
	since time.Time       // when it was published
	place *list.Element   // nil while a subscriber holds it, and when it is settled
	from  context.Context // the published message's context, if its publisher waits for the ack
	done  chan error      // gets the outcome, once
}

var (
	_ message.Publisher  = (*Bus)(nil)
	_ message.Subscriber = (*Bus)(nil)
)

// errNacked makes a publisher send the message again.
var errNacked = errors.New("inproc: the subscriber refused the message; it was not applied")

// New returns an open bus.
func New(cfg Config) (*Bus, error) {
	if cfg.MaxBytes < 0 {
		return nil, fmt.Errorf("inproc: MaxBytes must not be negative, got %d", cfg.MaxBytes)
	}
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 256<<20)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Bus{cfg: cfg, topics: make(map[string]*topic), room: make(chan struct{})}
	b.life, b.end = context.WithCancel(context.Background())
	return b, nil
}

// Publish hands messages over one after the other, and stops at the first error. The package comment
// has the table of results. A call may block: for room, and with WaitForAck for the ack.
func (b *Bus) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		d, err := b.enqueue(topic, m)
		if err != nil {
			return err
		}
		if !b.cfg.WaitForAck {
			continue
		}
		select {
		case err = <-d.done:
		case <-m.Context().Done():
			err = b.leave(d, context.Cause(m.Context()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enqueue waits for room and puts a copy of the message in the queue.
func (b *Bus) enqueue(name string, m *message.Message) (*delivery, error) {
	d := &delivery{since: time.Now(), msg: m.Copy(), size: int64(len(m.Payload)) + messageCost, done: make(chan error, 1), from: context.Background()}
	if b.cfg.WaitForAck {
		d.from = m.Context()
	}
	for {
		b.mu.Lock()
		switch {
		case b.closed:
			b.mu.Unlock()
			return nil, fmt.Errorf("inproc: %w", countmill.ErrClosed)
		case b.bytes == 0 || b.bytes+d.size <= b.cfg.MaxBytes:
			b.bytes += d.size
			d.topic = b.topicLocked(name)
			d.queueLocked()
			b.mu.Unlock()
			return d, nil
		}
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-b.life.Done():
		case <-m.Context().Done():
			return nil, fmt.Errorf("%w: inproc: no room: %w", countmill.ErrUnavailable, context.Cause(m.Context()))
		}
	}
}

func (b *Bus) topicLocked(name string) *topic {
	t, ok := b.topics[name]
	if !ok {
		t = &topic{line: list.New(), wake: make(chan struct{}, 1)}
		b.topics[name] = t
	}
	return t
}

func (d *delivery) queueLocked() {
	d.place = d.topic.line.PushBack(d)
	d.topic.signal()
}

func (t *topic) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Unseen returns the age of the oldest message that no subscriber has taken, 0 if there is none.
func (b *Bus) Unseen() (oldest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.topics {
		for e := t.line.Front(); e != nil; e = e.Next() {
			oldest = max(oldest, time.Since(e.Value.(*delivery).since))
		}
		if t.offered != nil {
			oldest = max(oldest, time.Since(t.offered.since))
		}
	}
	return oldest
}

// leave ends a publisher's wait. It takes back a message that no subscriber holds.
func (b *Bus) leave(d *delivery, cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case err := <-d.done:
		return err
	default:
	}
	if d.place == nil {
		return fmt.Errorf("%w: inproc: a subscriber holds the message: %w", countmill.ErrOutcomeUnknown, cause)
	}
	d.topic.line.Remove(d.place)
	b.settleLocked(d, nil)
	return fmt.Errorf("%w: inproc: no subscriber took the message: %w", countmill.ErrUnavailable, cause)
}

// settleLocked gives a message's outcome to its publisher, and its room to others.
func (b *Bus) settleLocked(d *delivery, err error) {
	d.place = nil
	d.done <- err
	b.bytes -= d.size
	close(b.room)
	b.room = make(chan struct{})
}

// Close ends all subscriptions and closes their channels. Waiting and later calls of Publish and
// Subscribe return an error that matches countmill.ErrClosed. Close the bus after its publisher and its
// subscriber: an unsettled message has an unknown outcome. A second call does nothing.
func (b *Bus) Close() error {
	b.mu.Lock()
	b.closed = true
	lost := 0
	for _, t := range b.topics {
		for e := t.line.Front(); e != nil; e = e.Next() {
			b.settleLocked(e.Value.(*delivery), fmt.Errorf("inproc: no subscriber took the message: %w", countmill.ErrClosed))
			lost++
		}
		t.line.Init()
	}
	b.mu.Unlock()
	b.end()
	b.tasks.Wait()
	if lost > 0 && !b.cfg.WaitForAck {
		b.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "bus closed with messages that no subscriber took", slog.Int("messages", lost))
	}
	return nil
}
