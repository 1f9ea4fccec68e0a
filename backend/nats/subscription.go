package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// heartbeat is how often the server shows that it knows a request for messages. When two are missing, the client asks
	// again.
	heartbeat = 3 * time.Second

	// pause is the least time between two requests of which the first has failed, and between two tries of an ack.
	pause = 250 * time.Millisecond

	// messageCost is about the memory of a message besides its payload: subjects, headers and a goroutine.
	messageCost = 4 << 10

	// maxDeliveries is how often a message is delivered before it is given up.
	maxDeliveries = 100
)

// A subscription asks for as many messages as there is room for, and asks again when they have come. Each message has
// a goroutine, from its arrival until its ack was sent: none waits where nobody extends its lease.
type subscription struct {
	b        *Bus
	stream   jetstream.Stream
	consumer jetstream.Consumer
	out      chan *message.Message
	stop     context.Context // ends when the subscription should end
	back     context.Context // ends when no further message comes, and those here are given back
	lost     context.Context // ends when acks are no longer sent
	wake     chan struct{}   // has an element when there may be room
	tasks    sync.WaitGroup  // the goroutines of messages

	mu    sync.Mutex // guards the fields below
	held  map[jetstream.Msg]bool
	bytes int  // of the held messages
	left  int  // messages that the request may still bring
	over  bool // no message is taken any more
}

func (b *Bus) subscribe(ctx context.Context) (*subscription, error) {
	stream, err := b.prepare(ctx)
	if err != nil {
		return nil, err
	}
	consumer, err := b.consumer(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range b.harmful(stream, consumer) {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a setting of NATS is harmful", slog.String("setting", h.what), slog.String("remedy", h.do))
	}
	return &subscription{
		b: b, stream: stream, consumer: consumer, out: make(chan *message.Message), stop: ctx,
		wake: make(chan struct{}, 1), held: make(map[jetstream.Msg]bool),
	}, nil
}

// run receives until the subscription should end. It returns when every message here is settled or given
// back, or after closeTimeout.
func (s *subscription) run() {
	var cancel, giveBack, lose context.CancelFunc
	s.stop, cancel = context.WithCancel(s.stop)
	defer cancel()
	defer context.AfterFunc(s.b.gate.Life, cancel)()
	s.lost, lose = context.WithCancel(context.Background())
	defer lose()
	s.back, giveBack = context.WithCancel(s.lost)
	context.AfterFunc(s.stop, func() { time.AfterFunc(closeTimeout, lose) })
	var beside sync.WaitGroup
	beside.Go(s.probe)
	beside.Go(s.extend)
	for s.stop.Err() == nil {
		s.pull()
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	giveBack()
	s.tasks.Wait()
	_ = s.b.conn.FlushTimeout(callTimeout) // acks that do not arrive are counted by nobody: the messages come again
	beside.Wait()
}

// pull asks for messages and waits until all have come, or the subscription should end. Then those that are on their way
// are still received, and given back.
func (s *subscription) pull() {
	n := s.room()
	if n == 0 {
		select {
		case <-s.wake:
		case <-s.stop.Done():
		}
		return
	}
	atOnce := max(1, nats.DefaultSubPendingBytesLimit/s.b.largest()) // the client drops messages beyond that limit
	request, err := s.consumer.Consume(s.receive, jetstream.StopAfter(n), jetstream.PullMaxMessages(min(n, atOnce)), jetstream.PullHeartbeat(heartbeat))
	if err == nil {
		select {
		case <-request.Closed():
		case <-s.stop.Done():
			request.Drain()
			select {
			case <-request.Closed():
			case <-s.lost.Done():
			}
		}
	}
	s.mu.Lock()
	failed := s.left > 0
	s.mu.Unlock()
	if failed {
		select {
		case <-time.After(pause):
		case <-s.stop.Done():
		}
	}
}

// room is how many messages may come now.
func (s *subscription) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = max(0, min(s.b.cfg.MaxOutstanding-len(s.held), (s.b.cfg.MaxBytes-s.bytes)/s.b.largest()))
	return s.left
}

// receive takes a message.
func (s *subscription) receive(raw jetstream.Msg) {
	meta, err := raw.Metadata()
	if err != nil {
		return // not a message of the stream
	}
	m, size := s.b.unmarshal(raw, meta), len(raw.Data())+messageCost
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.held[raw] = true
	s.bytes += size
	s.left--
	s.b.counts.Held.Add(1)
	s.tasks.Go(func() {
		s.settle(m, raw, meta.NumDelivered)
		s.mu.Lock()
		delete(s.held, raw)
		s.bytes -= size
		s.mu.Unlock()
		s.b.counts.Held.Add(-1)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	})
}

// settle delivers a message, waits until it is settled, and tells the server.
func (s *subscription) settle(m *message.Message, raw jetstream.Msg, deliveries uint64) {
	out := s.out
	if deliveries > maxDeliveries && s.b.givenUp != nil {
		out = s.b.givenUp
	}
	select {
	case out <- m:
	case <-s.back.Done():
		s.answer(raw.Nak, &s.b.counts.Nacks)
		return
	}
	select {
	case <-m.Acked():
	case <-m.Nacked():
		// The subscriber cannot take it now.
		delay := min(time.Second<<min(deliveries-1, 10), 10*time.Second)
		s.answer(func() error { return raw.NakWithDelay(delay) }, &s.b.counts.Nacks)
		return
	case <-s.back.Done():
	}
	select {
	case <-m.Acked():
		s.answer(raw.Ack, &s.b.counts.Acks)
	default:
		// Nobody has acked it: it goes to another process at once.
		s.answer(raw.Nak, &s.b.counts.Nacks)
	}
}

// answer sends an ack or a nack. It waits for a broken connection until the acks are lost.
func (s *subscription) answer(send func() error, count *atomic.Int64) {
	for send() != nil {
		select {
		case <-time.After(pause):
		case <-s.lost.Done():
			if count == &s.b.counts.Acks {
				s.b.counts.AcksLost.Add(1)
			}
			return
		}
	}
	count.Add(1)
}

// extend extends the lease of each message here, until the subscription should end.
func (s *subscription) extend() {
	tick := time.NewTicker(s.consumer.CachedInfo().Config.AckWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.stop.Done():
			return
		}
		s.mu.Lock()
		held := slices.Collect(maps.Keys(s.held))
		s.mu.Unlock()
		for _, raw := range held {
			_ = raw.InProgress() // without a connection, or for a message that is settled now
		}
	}
}

// probe looks the consumer up every probeEvery until the subscription should end. A look that fails leaves the oldest
// message as it was.
func (s *subscription) probe() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		unseen, err := s.look()
		if err != nil {
			err = fmt.Errorf("nats: nothing is received: %w", err)
		}
		s.b.mu.Lock()
		if s.b.probe = err; err == nil {
			s.b.unseen = unseen
		}
		s.b.mu.Unlock()
		select {
		case <-tick.C:
		case <-s.stop.Done():
			s.b.mu.Lock()
			s.b.probe, s.b.unseen = nil, time.Time{}
			s.b.mu.Unlock()
			return
		}
	}
}

// look returns the publish time of the oldest message that no process has taken; zero if there is none.
func (s *subscription) look() (unseen time.Time, err error) {
	consumer, err := s.b.consumer(s.stop)
	if err != nil || consumer.CachedInfo().NumPending == 0 {
		return unseen, err
	}
	ctx, cancel := context.WithTimeout(s.stop, callTimeout)
	defer cancel()
	m, err := s.stream.GetMsg(ctx, consumer.CachedInfo().Delivered.Stream+1, jetstream.WithGetMsgSubject(">"))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // it was taken meanwhile
		return unseen, nil
	case err != nil:
		return unseen, s.b.explain(err, "oldest message of stream "+s.b.cfg.Stream)
	}
	return m.Time, nil
}
