package httpbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A Bus sends batches to one server, or to several behind one address. All methods are safe for
// concurrent use. Close it after its publisher.
type Bus struct {
	target   string // the address of the route
	token    func(context.Context) (string, error)
	http     *http.Client
	timeout  time.Duration
	insecure bool
	log      *slog.Logger

	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex // guards the fields below
	closed bool
	calls  sync.WaitGroup // added to only while not closed
	held   map[string]*held
}

// A held is a message that the server has not taken yet.
type held struct {
	since  time.Time
	reason error
	tries  int  // that failed; 0 during the first
	maybe  bool // a try may have been counted
}

// maxHeld bounds Bus.held. A publisher holds as many messages as it makes calls at once, and up to 1,024 that were refused
// alone. There is room for those of several: without room for a message in a call, the held ones would wait for that call, and it for them.
const maxHeld = 4096

var errFull = fmt.Errorf("%d batches are held or under way, and no further one is sent before one of them is taken", maxHeld)

var _ message.Publisher = (*Bus)(nil)

// Open returns a Bus to the server at address: http://HOST:PORT, https://HOST:PORT, or the same with
// a path below which the server is mounted. It makes no call: the server may start later.
func Open(address string, options ...Option) (*Bus, error) {
	u, err := parse(address)
	if err != nil {
		return nil, err
	}
	b := &Bus{target: u.String() + "/v1/batches", http: defaultHTTP(), timeout: 30 * time.Second, log: slog.New(slog.DiscardHandler), held: make(map[string]*held)}
	for _, o := range options {
		o(b)
	}
	if err := b.check(u); err != nil {
		return nil, err
	}
	b.life, b.end = context.WithCancel(context.Background())
	return b, nil
}

// Publish sends the batches one after the other, each once, and stops at the first error. To send
// several at once, call it from several goroutines. The topic has no effect: the server knows its
// own. The package comment has the table of errors.
func (b *Bus) Publish(_ string, messages ...*message.Message) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return fmt.Errorf("httpbus: %w", countmill.ErrClosed)
	}
	b.calls.Add(1)
	b.mu.Unlock()
	defer b.calls.Done()
	for _, m := range messages {
		if err := b.send(m); err != nil {
			return err
		}
	}
	return nil
}

// send sends a batch once, and notes the outcome.
func (b *Bus) send(m *message.Message) error {
	if !b.list(m.UUID) {
		return &wire.HeldError{Reason: fmt.Errorf("httpbus: %w", errFull), After: firstPause}
	}
	ctx, cancel := context.WithTimeout(m.Context(), b.timeout)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	answer, err := b.post(ctx, m)
	if err == nil {
		err = b.settle(m, answer)
	}
	if err == nil {
		b.mu.Lock()
		delete(b.held, m.UUID)
		b.mu.Unlock()
		return nil
	}
	after := b.hold(m.UUID, err)
	if b.life.Err() != nil {
		return fmt.Errorf("httpbus: %w: %w", countmill.ErrClosed, err)
	}
	// A batch before the window may wait for ever.
	r, refused := errors.AsType[*refusal](err)
	return &wire.HeldError{Reason: fmt.Errorf("httpbus: %w", err), After: after, Alone: refused && r.kind == "clock-skew"}
}

// settle adds the answer to the message's reply.
func (b *Bus) settle(m *message.Message, a answer) error {
	reply := wire.OfferedReply(m.Context())
	if reply != nil {
		reply.Answer(a.receipt(), a.CountedAsOf)
	}
	if len(a.Conflicts) == 0 {
		return nil
	}
	batch, err := wire.Decode(m.Payload)
	if err != nil {
		return fmt.Errorf("the batch cannot be read: %w", err)
	}
	for _, c := range a.Conflicts {
		if c.Part < 0 || c.Part >= len(batch.Parts) {
			return &broken{fmt.Errorf("the answer names part %d of %d", c.Part, len(batch.Parts))}
		}
		// Only this part was left out: all others of the batch were counted.
		p := &batch.Parts[c.Part]
		b.log.LogAttrs(m.Context(), slog.LevelWarn, "a part was left out", slog.String("batch", m.UUID),
			slog.Int("part", c.Part), slog.String("part_id", p.ID.String()), slog.String("reason", c.Reason))
		switch use := (wire.Use{ID: p.ID, Fingerprint: p.Fingerprint()}); {
		case reply == nil:
		case c.Reason == "expired":
			reply.AddExpired(use)
		default:
			reply.Add(use)
		}
	}
	return nil
}

// list makes room for the batch, so that every batch that may be counted is known. It reports false if there is none.
func (b *Bus) list(uuid string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[uuid] != nil {
		return true
	}
	if len(b.held) >= maxHeld {
		return false
	}
	b.held[uuid] = &held{since: time.Now()}
	return true
}

// hold notes a failed try, and returns how long the next one should wait.
func (b *Bus) hold(uuid string, err error) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[uuid]
	if h == nil { // another try of the same batch was successful
		h = &held{since: time.Now()}
		b.held[uuid] = h
	}
	h.tries++
	h.reason, h.maybe = err, h.maybe || maybeTaken(err)
	return pause(h.tries, err)
}

// Ready returns nil, or why batches are held: the reason of the batch that has waited longest. The
// error matches countmill.ErrClosed if the bus is closed. It makes no call.
func (b *Bus) Ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("httpbus: %w", countmill.ErrClosed)
	}
	var oldest *held
	failed := 0
	for _, h := range b.held {
		if h.tries == 0 {
			continue
		}
		if failed++; oldest == nil || h.since.Before(oldest.since) {
			oldest = h
		}
	}
	if oldest == nil {
		return nil
	}
	return fmt.Errorf("httpbus: %d batches are held, the oldest since %s: %w", failed, oldest.since.UTC().Format(time.RFC3339), oldest.reason)
}

// Close ends the calls under way and disconnects. If batches were held or under way that the server
// may have taken, the error matches countmill.ErrOutcomeUnknown and has their number: close the
// publisher first, which sends them until its time is over. A second call does nothing.
func (b *Bus) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.calls.Wait()
	b.http.CloseIdleConnections()
	b.mu.Lock()
	defer b.mu.Unlock()
	maybe, not := 0, 0
	for _, h := range b.held {
		if h.maybe {
			maybe++
		} else {
			not++
		}
	}
	if maybe+not == 0 {
		return nil
	}
	if maybe == 0 {
		return fmt.Errorf("httpbus: %d batches were held and are not counted", not)
	}
	return fmt.Errorf("httpbus: %w: %d batches; %d more were held and are not counted", countmill.ErrOutcomeUnknown, maybe, not)
}
