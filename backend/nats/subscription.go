package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// pullExpires is how long a request for messages waits at the server. The server sends a heartbeat every
	// pullHeartbeat meanwhile, and after pullSilence without anything the request counts as lost.
	pullExpires   = 30 * time.Second
	pullHeartbeat = 3 * time.Second
	pullSilence   = 10 * time.Second

	// pullPause is the least time between a request that was refused and the next one.
	pullPause = 250 * time.Millisecond

	// maxDeliveries is how often a message is delivered before it is given up.
	maxDeliveries = 100
)

// A subscription asks for messages, as many as there is room for, and asks again when they have come. At
// most one request is under way. Each message has a goroutine, from its arrival until its ack was sent.
type subscription struct {
	b       *Bus
	out     chan *message.Message
	ackWait time.Duration
	inbox   string
	stop    context.Context // ends when the subscription should end
	lost    context.Context // ends when acks are no longer sent
	wake    chan struct{}   // has an element when there may be room, or no request
	tasks   sync.WaitGroup  // the goroutines of messages

	mu          sync.Mutex     // guards the fields below
	held        map[string]int // the size of each message, by the subject of its ack
	bytes       int            // their sum
	number      int            // of the latest request
	left        int            // messages that it may still bring; 0 if it has ended
	heard       time.Time      // when the server last sent something
	pause       time.Time      // no request before that
	connections uint64         // how often the client had connected again at the latest request
	over        bool           // no message is taken any more
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
	for _, h := range b.harmful(stream, consumer.Config) {
		b.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a setting of NATS is harmful", slog.String("setting", h.what), slog.String("remedy", h.do))
	}
	return &subscription{
		b: b, out: make(chan *message.Message), ackWait: consumer.Config.AckWait, inbox: b.conn.NewInbox(), stop: ctx,
		wake: make(chan struct{}, 1), held: make(map[string]int),
	}, nil
}

// run receives until the subscription should end. It returns when every message here is settled or given
// back, or after closeTimeout.
func (s *subscription) run() {
	var cancel, lose context.CancelFunc
	s.stop, cancel = context.WithCancel(s.stop)
	defer cancel()
	defer context.AfterFunc(s.b.life, cancel)()
	s.lost, lose = context.WithCancel(context.Background())
	defer lose()
	sub, err := s.b.conn.Subscribe(s.inbox+".*", s.receive)
	if err != nil {
		return // only a closed connection refuses it
	}
	_ = sub.SetPendingLimits(-1, -1) // requests have bounds already
	var beside sync.WaitGroup
	beside.Go(s.probe)
	s.pull()
	s.drain(sub, lose)
	beside.Wait()
}

// pull asks for messages, and extends leases, until the subscription should end.
func (s *subscription) pull() {
	second, lease := time.NewTicker(pullPause), time.NewTicker(s.ackWait/3)
	defer second.Stop()
	defer lease.Stop()
	for {
		if body := s.request(); body != nil {
			subject := fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", s.b.cfg.Stream, s.b.cfg.Consumer)
			if err := s.b.conn.PublishRequest(subject, fmt.Sprintf("%s.%d", s.inbox, s.number), body); err != nil {
				s.ended(s.number, true)
			}
		}
		select {
		case <-s.wake:
		case <-second.C:
		case <-lease.C:
			s.extend()
		case <-s.stop.Done():
			return
		}
	}
}

// request is the body of the next request; nil if there is one, or no room.
func (s *subscription) request() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, connections := time.Now(), s.b.conn.Stats().Reconnects
	if now.Sub(s.heard) > pullSilence || s.connections != connections { // the server has forgotten it
		s.left, s.connections = 0, connections
	}
	room, bytes := s.b.cfg.MaxOutstanding-len(s.held), s.b.cfg.MaxBytes-s.bytes
	if s.left > 0 || room < 1 || bytes < s.b.largest() || now.Before(s.pause) || !s.b.conn.IsConnected() {
		return nil
	}
	s.number, s.left, s.heard = s.number+1, room, now
	body, _ := json.Marshal(map[string]any{"batch": room, "max_bytes": bytes, "expires": pullExpires, "idle_heartbeat": pullHeartbeat})
	return body
}

// ended notes that a request brings no more messages.
func (s *subscription) ended(number int, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number == s.number {
		s.left = 0
	}
	if refused {
		s.pause = time.Now().Add(pullPause)
	}
	s.poke()
}

// poke has the next request made if there may be one.
func (s *subscription) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// receive takes an answer of the server: a message, or a line about a request.
func (s *subscription) receive(raw *nats.Msg) {
	if raw.Reply == "" {
		number, _ := strconv.Atoi(strings.TrimPrefix(raw.Subject, s.inbox+"."))
		switch status, text := raw.Header.Get("Status"), raw.Header.Get("Description"); {
		case status == "100": // a heartbeat
			s.mu.Lock()
			s.heard = time.Now()
			s.mu.Unlock()
		case status == "408" || text == "Batch Completed" || text == "Message Size Exceeds MaxBytes":
			s.ended(number, false) // it has expired, or brought what it could
		default: // another leader, no consumer
			s.ended(number, true)
		}
		return
	}
	meta, err := raw.Metadata()
	if err != nil {
		return // not a message of the stream
	}
	m, reply, size := s.b.unmarshal(raw, meta), raw.Reply, raw.Size()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.held[reply], s.bytes, s.heard = size, s.bytes+size, time.Now()
	if s.left = max(s.left-1, 0); s.left == 0 {
		s.poke()
	}
	s.b.stats.held.Add(1)
	s.tasks.Go(func() {
		s.settle(m, reply, meta.NumDelivered)
		s.mu.Lock()
		delete(s.held, reply)
		s.bytes -= size
		s.mu.Unlock()
		s.b.stats.held.Add(-1)
		s.poke()
	})
}

// settle delivers a message, waits until it is settled, and tells the server.
func (s *subscription) settle(m *message.Message, reply string, deliveries uint64) {
	out := s.out
	if deliveries > maxDeliveries && s.b.givenUp != nil {
		out = s.b.givenUp
	}
	select {
	case out <- m:
	case <-s.stop.Done():
		s.answer(reply, "-NAK", &s.b.stats.nacks)
		return
	}
	select {
	case <-m.Acked():
	case <-m.Nacked():
		// The subscriber cannot take it now.
		delay := min(time.Second<<min(deliveries-1, 10), 10*time.Second)
		s.answer(reply, fmt.Sprintf(`-NAK {"delay":%d}`, delay), &s.b.stats.nacks)
		return
	case <-s.stop.Done():
	}
	select {
	case <-m.Acked():
		s.answer(reply, "+ACK", &s.b.stats.acks)
	default:
		// Nobody has acked it: it goes to another process at once.
		s.answer(reply, "-NAK", &s.b.stats.nacks)
	}
}

// answer sends an ack or a nack. It waits for a broken connection until the acks are lost.
func (s *subscription) answer(reply, text string, count *atomic.Int64) {
	for s.b.conn.Publish(reply, []byte(text)) != nil {
		select {
		case <-time.After(pullPause):
		case <-s.lost.Done():
			if text == "+ACK" {
				s.b.stats.acksLost.Add(1)
			}
			return
		}
	}
	count.Add(1)
}

// extend extends the lease of each message here.
func (s *subscription) extend() {
	s.mu.Lock()
	replies := slices.Collect(maps.Keys(s.held))
	s.mu.Unlock()
	for _, reply := range replies {
		if s.b.conn.Publish(reply, []byte("+WPI")) != nil {
			return // there is no connection
		}
	}
}

// drain ends the request, lets the goroutines of the messages end, and sends all that they wrote.
func (s *subscription) drain(sub *nats.Subscription, lose context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, lose)()
	closed := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(closed) })
	if sub.Drain() == nil { // messages that have come are still received, and given back
		select {
		case <-closed:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.tasks.Wait()
	_ = s.b.conn.FlushWithContext(ctx) // acks that do not arrive are counted by nobody: the messages come again
}

// probe looks the consumer up every probeEvery until the subscription should end.
func (s *subscription) probe() {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		unseen, err := s.look()
		if s.stop.Err() != nil {
			return
		}
		if err != nil {
			err = fmt.Errorf("nats: nothing is received: %w", err)
		}
		s.b.mu.Lock()
		s.b.probe, s.b.unseen = err, unseen
		s.b.mu.Unlock()
		select {
		case <-tick.C:
		case <-s.stop.Done():
			return
		}
	}
}

// look returns the publish time of the oldest message that no process has taken; zero if there is none.
func (s *subscription) look() (unseen time.Time, err error) {
	info, err := s.b.consumer(s.stop)
	if err != nil || info.NumPending == 0 {
		return unseen, err
	}
	ctx, cancel := context.WithTimeout(s.stop, callTimeout)
	defer cancel()
	stream, err := s.b.js.Stream(ctx, s.b.cfg.Stream)
	if err != nil {
		return unseen, s.b.explain(err, "stream "+s.b.cfg.Stream)
	}
	m, err := stream.GetMsg(ctx, info.Delivered.Stream+1, jetstream.WithGetMsgSubject(">"))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // it was taken meanwhile
		return unseen, nil
	case err != nil:
		return unseen, s.b.explain(err, "oldest message of stream "+s.b.cfg.Stream)
	}
	return m.Time, nil
}
