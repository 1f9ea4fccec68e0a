package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/wire"
)

const (
	heartbeat     = 3 * time.Second        // of a request for messages: when two are missing, the client asks again
	pause         = 250 * time.Millisecond // after a failure
	messageCost   = 4 << 10                // is about the memory of a message besides its payload: subjects, headers and a goroutine
	maxDeliveries = 100                    // is how often a message is delivered before it is given up
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
	leases   *time.Ticker    // when to extend them
	ackWait  time.Duration   // of the consumer, as the latest probe saw it

	mu     sync.Mutex // guards the fields below
	held   map[jetstream.Msg]bool
	bytes  int   // of the held messages
	failed error // of a request since the latest probe
}

func (b *Bus) subscribe(ctx context.Context) (out chan *message.Message, run func(context.Context) error, err error) {
	stream, err := b.prepare(ctx)
	if err != nil {
		return nil, nil, err
	}
	consumer, err := b.consumer(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range b.harmful(stream, consumer) {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a setting of NATS is harmful", slog.String("setting", f.What), slog.String("remedy", f.Do))
	}
	s := &subscription{
		b: b, stream: stream, consumer: consumer, out: make(chan *message.Message),
		wake: make(chan struct{}, 1), held: make(map[jetstream.Msg]bool),
	}
	return s.out, s.run, nil
}

// run receives until stop ends. It returns when every message here is settled or given back, or after closeTimeout.
func (s *subscription) run(stop context.Context) error {
	var giveBack, lose context.CancelFunc
	s.stop = stop
	s.lost, lose = context.WithCancel(context.Background())
	defer lose()
	s.back, giveBack = context.WithCancel(s.lost)
	context.AfterFunc(stop, func() { time.AfterFunc(closeTimeout, lose) })
	var beside sync.WaitGroup
	s.ackWait = s.consumer.CachedInfo().Config.AckWait
	s.leases = time.NewTicker(s.ackWait / 3)
	defer s.leases.Stop()
	beside.Go(func() { s.probe(); backend.Every(stop, probeEvery, s.probe) })
	beside.Go(func() {
		for {
			select {
			case <-s.leases.C:
				s.extend()
			case <-stop.Done():
				return
			}
		}
	})
	for stop.Err() == nil {
		s.pull()
	}
	s.mu.Lock()
	giveBack()
	s.mu.Unlock()
	s.tasks.Wait()
	_ = s.b.conn.FlushTimeout(callTimeout) // acks that do not arrive are counted by nobody: the messages come again
	beside.Wait()
	s.b.unseen.Store(0)
	return nil
}

// pull asks for messages and waits until all have come, or the subscription should end. Then messages on their way
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
	request, err := s.consumer.Consume(s.receive, jetstream.StopAfter(n), jetstream.PullMaxMessages(min(n, atOnce)),
		jetstream.PullHeartbeat(heartbeat), jetstream.ConsumeErrHandler(s.pause))
	if err != nil {
		s.pause(nil, err)
		return
	}
	select {
	case <-request.Closed():
		return
	case <-s.stop.Done():
	}
	request.Drain()
	select {
	case <-request.Closed():
	case <-s.lost.Done():
	}
}

// pause waits after a failure: the request is repeated.
func (s *subscription) pause(_ jetstream.ConsumeContext, err error) {
	s.mu.Lock()
	s.failed = err
	s.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-s.stop.Done():
	}
}

// room is how many messages may come now.
func (s *subscription) room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, min(s.b.cfg.MaxOutstanding-len(s.held), (s.b.cfg.MaxBytes-s.bytes)/s.b.largest()))
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
	if s.back.Err() != nil {
		return
	}
	s.held[raw] = true
	s.bytes += size
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

// settle delivers a message, waits until it is settled, and reports that to the server.
func (s *subscription) settle(m *message.Message, raw jetstream.Msg, deliveries uint64) {
	out := s.out
	if deliveries > maxDeliveries && s.b.givenUp != nil {
		out = s.b.givenUp
	}
	select {
	case out <- m:
		select {
		case <-m.Acked():
		case <-m.Nacked():
		case <-s.back.Done():
		}
	case <-s.back.Done():
	}
	select {
	case <-m.Acked():
		s.answer(raw.Ack, &s.b.counts.Acks)
	case <-m.Nacked():
		// The subscriber cannot take it now.
		delay := min(time.Second<<min(deliveries-1, 10), 10*time.Second)
		s.answer(func() error { return raw.NakWithDelay(delay) }, &s.b.counts.Nacks)
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

// extend extends the lease of each message here.
func (s *subscription) extend() {
	s.mu.Lock()
	held := slices.Collect(maps.Keys(s.held))
	s.mu.Unlock()
	for _, raw := range held {
		_ = raw.InProgress() // it fails without a connection
	}
}

// probe looks the consumer up. A failed probe leaves the oldest message as it was.
func (s *subscription) probe() {
	unseen, err := s.look()
	s.mu.Lock()
	err, s.failed = cmp.Or(err, s.failed), nil
	s.mu.Unlock()
	switch {
	case s.stop.Err() != nil:
	case err != nil:
		s.b.gate.Probed(fmt.Errorf("nothing is received: %w", err))
	default:
		s.b.gate.Probed(nil)
		s.b.unseen.Store(unseen)
	}
}

// look returns the publish time of the oldest message that no process has taken; 0 if there is none.
func (s *subscription) look() (unseen int64, err error) {
	consumer, err := s.b.consumer(s.stop)
	if err != nil {
		return 0, err
	}
	if wait := consumer.CachedInfo().Config.AckWait; wait != s.ackWait {
		s.ackWait = wait
		s.leases.Reset(wait / 3)
	}
	if consumer.CachedInfo().NumPending == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(s.stop, callTimeout)
	defer cancel()
	m, err := s.stream.GetMsg(ctx, consumer.CachedInfo().Delivered.Stream+1, jetstream.WithGetMsgSubject(">"))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // it was taken meanwhile
		return 0, nil
	case err != nil:
		return 0, s.b.explain(err, "oldest message of stream "+s.b.cfg.Stream)
	}
	return m.Time.UnixNano(), nil
}

// uuidHeader has the UUID of a message, as the buses of Watermill name it.
const uuidHeader = "_watermill_message_uuid"

func marshal(subject string, m *message.Message) *nats.Msg {
	out := &nats.Msg{Subject: subject, Data: m.Payload, Header: nats.Header{uuidHeader: {m.UUID}}}
	for key, value := range m.Metadata {
		out.Header[key] = []string{value}
	}
	return out
}

// unmarshal makes a message of one of the stream. NATS's own data replaces headers of the same names.
func (b *Bus) unmarshal(raw jetstream.Msg, meta *jetstream.MsgMetadata) *message.Message {
	header := raw.Headers()
	b.counts.Deliveries.Add(1)
	id := cmp.Or(header.Get(nats.MsgIdHdr), fmt.Sprintf("%d@%d", meta.Sequence.Stream, meta.Timestamp.UnixNano()))
	m := message.NewMessage(header.Get(uuidHeader), raw.Data())
	for key, values := range header {
		if key != uuidHeader && len(values) > 0 && !strings.HasPrefix(key, "Nats-") {
			m.Metadata.Set(key, values[0])
		}
	}
	delete(m.Metadata, wire.MetaGivenUp)
	delete(m.Metadata, wire.MetaFirstPublished)
	m.Metadata.Set(wire.MetaBrokerID, id)
	m.Metadata.Set(wire.MetaTopic, b.cfg.Stream)
	m.Metadata.Set(wire.MetaPublished, meta.Timestamp.UTC().Format(time.RFC3339Nano))
	if meta.NumDelivered > 1 {
		b.counts.Redeliveries.Add(1)
	}
	if meta.NumDelivered > maxDeliveries {
		m.Metadata.Set(wire.MetaGivenUp, fmt.Sprintf("given up after deliveries: %d, of stream %s to consumer %s", meta.NumDelivered-1, b.cfg.Stream, meta.Consumer))
	}
	return m
}
