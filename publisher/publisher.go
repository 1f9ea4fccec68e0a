package publisher

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/wire"
)

// A Bus takes messages. It is the part of Watermill's message.Publisher that a Publisher uses.
// The Publisher passes one message a call, and makes concurrent calls.
//
// Publish returns nil when the bus has the message durably. After an error that matches
// countmill.ErrClosed the outcome is unknown, and the Publisher does not repeat the message.
// After every other error it repeats the message. So a bus that must not get a second copy may
// not return such an error while the first copy may be taken. A *wire.HeldError makes the Publisher
// wait longer before it repeats the message.
//
// A bus that knows which parts were not counted adds them to the reply in the message's context
// (wire.OfferedReply) before Publish returns nil. The Publisher then fails the calls that these
// parts belong to, and no others. A bus whose other end gives receipts passes them on (wire.Reply.Answer).
//
// The bus bounds the time of a call itself: the message's context ends only when Close runs out
// of time. The bus must not change the payload.
type Bus interface {
	Publish(topic string, messages ...*message.Message) error
}

// A Config sets up a Publisher. The zero value works.
type Config struct {
	// Topic is the topic to publish on. Default "countmill".
	Topic string

	// Linger is how long a batch waits for more after its first increment. Default 250ms.
	//
	// If it is negative, a batch waits only while calls to the bus are under way, at most 2s, and
	// at most 10ms while a Publish waits.
	//
	// A batch of 10,000 entries or more keeps the store busy. If the answers of the bus come after
	// the fold (Sent.Counted), or Linger is negative, the next batch then waits four times as long as
	// that one took, at most 2s. While a Publish waits, no batch does so.
	Linger time.Duration

	// CountWithin is the age up to which an increment should be counted; 0 for no such target. A
	// batch then waits until a moment by the wall clock that is the same for all publishers with
	// this CountWithin. So an aggregator can fold their batches in one commit. Linger wins if
	// both are set. From 100ms to 1m. Default 0.
	CountWithin time.Duration

	// MaxEntries is the most entries of the open batch: distinct counters of Add, and each
	// increment of Publish. The linger ends at three quarters of it. One call with more entries
	// always gets ErrOverloaded. Default 2,000,000.
	MaxEntries int

	// MaxBytes is the approximate bound of the memory of the open batch. The linger ends at three
	// quarters of it. Default 256 MiB.
	MaxBytes int

	// MaxInFlight is the most calls to the bus at once. Default 8, which is a guess: few calls
	// let increments gather meanwhile.
	MaxInFlight int

	// DedupWindow returns the greatest age of an increment's time, which may change. If it is longer than the
	// deduplication window of the database, an increment between the two becomes a dead letter; over HTTP one with an id gets
	// ErrOutcomeUnknown. It must allow concurrent calls.
	// Default nil: countmill.DefaultDedupWindow.
	DedupWindow func() time.Duration

	// Database is the database that the aggregators of this bus write, for receipts: a reader of
	// another one then refuses them. Default 0: not known, and not checked.
	Database wire.DatabaseTag

	// Journal reports whether the increments of a counter are kept as evidence (store.Rules.JournalOf). Those
	// of different senders (WithSender) are then not summed. It must be quick and allow concurrent calls.
	// Default nil: no counter's.
	Journal func(counter string) bool

	// KnownKeys is the number of Idempotency-Keys that are remembered, to refuse a key that comes
	// with another body. Default 100,000.
	KnownKeys int

	// Logger gets a line when the bus does not take a message. Default: discards.
	Logger *slog.Logger

	env *clock.Env // of a simulation (clock.With), otherwise nil
}

var _ = clock.Hook(func(c *Config, e *clock.Env) { c.env = e })

const defaultTopic = "countmill"

func (c Config) withDefaults() Config {
	c.Topic = cmp.Or(c.Topic, defaultTopic)
	c.Linger = cmp.Or(c.Linger, lingerWithin(c.CountWithin), 250*time.Millisecond)
	c.MaxEntries = cmp.Or(c.MaxEntries, 2_000_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 8)
	c.KnownKeys = cmp.Or(c.KnownKeys, 100_000)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	positive := func(field string, n int64) {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%s must be at least 1, got %d", field, n))
		}
	}
	positive("MaxEntries", int64(c.MaxEntries))
	positive("MaxBytes", int64(c.MaxBytes))
	positive("MaxInFlight", int64(c.MaxInFlight))
	positive("KnownKeys", int64(c.KnownKeys))
	if c.CountWithin != 0 && (c.CountWithin < MinCountWithin || c.CountWithin > MaxCountWithin) {
		errs = append(errs, fmt.Errorf("CountWithin must be from %s to %s, or 0 for no target, got %s", MinCountWithin, MaxCountWithin, c.CountWithin))
	}
	return errors.Join(errs...)
}

// A Publisher coalesces increments and sends them. It is safe for concurrent use. Close it, or
// increments are lost.
type Publisher struct {
	bus Bus
	cfg Config
	// together is true if batches are flushed at multiples of the linger by the wall clock
	// (CountWithin). Messages of all publishers then arrive together, so windows only cover their spread.
	together bool
	wake     chan struct{} // wakes the sender; has room for one signal

	seed    maphash.Seed // seed of the places of counters
	stripes [stripeCount]stripe
	open    gauge // size and bounds of the open batch
	refused atomic.Int64

	// life ends when Close runs out of time. It is the context of messages.
	life    context.Context
	abort   context.CancelFunc
	closing chan struct{} // closed when Close begins

	started atomic.Bool   // the sender runs, or has run
	done    chan struct{} // closed when the sender has returned
	taken   drain         // used by the sender, again for each flush

	deliveries sync.WaitGroup // waited for by the sender

	mu             sync.Mutex // for all below; locked before a stripe's mutex, never after it
	closed         bool
	past           []*drain            // drains of past minutes, by turnLocked, oldest first, and the last one, by Close
	requests       *list.List          // of *request, admitted and not flushed, oldest first
	long           long                // requests that take turns with all others
	urgent         bool                // a Flush or Close waits: no linger
	known          *knownKeys          // keys admitted
	pendingFlushes map[*flush]struct{} // not settled
	flushCount     int                 // flushes so far
	recent         recent              // for the receipts of Flush
	queue          []*busMessage       // messages that wait for a slot
	inFlight       int
	aside          int // messages that wait without a slot
	asideBytes     int
	busy           time.Duration // how long the last settled flush took, if it was large
	lost           error         // error of the last message whose outcome stays unknown
	lostAdds       int64         // number of increments of Add in such messages
	stats          Stats
	health         health
}

// New returns a Publisher that sends over bus. It starts no goroutine: the first increment does.
func New(bus Bus, cfg Config) (*Publisher, error) {
	together := cfg.Linger == 0 && cfg.CountWithin > 0
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	if bus == nil {
		return nil, errors.New("publisher: bus is nil")
	}
	p := &Publisher{
		bus:            bus,
		seed:           maphash.MakeSeed(),
		cfg:            cfg,
		together:       together,
		wake:           make(chan struct{}, 1),
		done:           make(chan struct{}),
		closing:        make(chan struct{}),
		requests:       list.New(),
		known:          newKnownKeys(cfg.KnownKeys),
		pendingFlushes: make(map[*flush]struct{}),
	}
	p.taken.items = make([][]item, 1<<drainBits)
	p.open.maxEntries, p.open.maxBytes = int64(cfg.MaxEntries), int64(cfg.MaxBytes)
	p.life, p.abort = context.WithCancel(context.Background())
	for i := range p.stripes {
		s := &p.stripes[i]
		s.open, s.env, s.many = &p.open, cfg.env, manyAdds
		s.most = size{2 * (cfg.MaxEntries/stripeCount + minCells), int64(cfg.MaxBytes / stripeCount)}
	}
	return p, nil
}

// signal wakes the sender, and starts it the first time.
func (p *Publisher) signal() {
	if !p.started.Load() && p.started.CompareAndSwap(false, true) {
		p.cfg.env.Go(p.run)
	}
	select {
	case p.wake <- struct{}{}:
	default: // it has not taken the last signal yet
	}
}

// Close refuses new increments, sends the accepted ones, and returns nil when the bus has them
// all. If ctx ends first or the bus was closed, the error matches countmill.ErrOutcomeUnknown and
// has the number of increments that are not known to be durable. It may or may not include
// increments of an Add that runs at the same time. Close does not wait longer than ctx, even if
// the bus does not return. A second Close returns ErrClosed.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return countmill.ErrClosed
	}
	p.closed, p.urgent = true, true
	close(p.closing)
	last := p.drain(newDrain(), true)
	if last.increments > 0 {
		p.past = append(p.past, last)
	}
	idle := !p.started.Load() && last.increments == 0 && p.waitingLocked() == 0
	p.mu.Unlock()
	defer p.abort()
	if idle && p.started.CompareAndSwap(false, true) {
		close(p.done)
		return nil
	}
	p.signal()
	select {
	case <-p.done:
		return p.unsettled(nil)
	case <-ctx.Done():
		return p.unsettled(context.Cause(ctx))
	}
}

// unsettled is the error for increments that are not known to be durable; nil if there are none.
func (p *Publisher) unsettled(cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.stats.Unknown
	for s := range p.pendingFlushes {
		n += s.increments
	}
	for _, waiting := range []*list.List{p.requests, &p.long.requests} {
		for e := waiting.Front(); e != nil; e = e.Next() {
			n += e.Value.(*request).increments
		}
	}
	for _, h := range p.past {
		n += h.increments
	}
	if n == 0 {
		return nil
	}
	if cause == nil {
		cause = p.lost
	}
	return fmt.Errorf("%w: %d increments are not known to be durable: %w", countmill.ErrOutcomeUnknown, n, cause)
}
