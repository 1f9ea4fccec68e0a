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
	"github.com/countmill/countmill/internal/sysenv"
)

// A Bus takes messages. It is the part of Watermill's message.Publisher that a
// Publisher uses, one message a call, with concurrent calls.
//
// Publish returns nil when the bus has the message durably. After an error that
// matches countmill.ErrClosed the message is not sent again and its outcome is unknown;
// after any other error it is sent again, so a bus that cannot bear a second copy
// must not answer so while the first may be taken. The bus bounds the time of a call
// itself; the message's context ends only when Close has run out of time. The bus
// must not change the payload.
type Bus interface {
	Publish(topic string, messages ...*message.Message) error
}

// A Config says how a Publisher batches. The zero value works.
type Config struct {
	// Topic is where batches are sent. Default "countmill".
	Topic string

	// Linger is how long a batch waits for more after its first increment. Negative:
	// not at all while no call to the bus is under way, else until they have ended. After a
	// batch of 10,000 entries or more, which keeps the store busy, as long again. At most
	// 2s, and 10ms with increments of Publish, which do not wait again. Default 250ms.
	Linger time.Duration

	// CountWithin is how old an increment may be when it is counted. A batch then waits for a
	// part of it, until a moment by the wall clock that is the same for all publishers with
	// this CountWithin, so that an aggregator folds what all of them have in one commit.
	// Default 0, which is none: Linger. A Linger beside it wins.
	CountWithin time.Duration

	// MaxEntries is the most entries of the open batch: distinct counters of Add, and
	// each increment of Publish. Three quarters of it end the linger; one call with more is
	// always overloaded. Default 2,000,000.
	MaxEntries int

	// MaxBytes is the most memory of the open batch, roughly. Three quarters of it end the
	// linger. Default 256 MiB.
	MaxBytes int

	// MaxInFlight is the most messages on their way to the bus at once. Default 8,
	// which is a guess: a few, so that increments gather in the meantime.
	MaxInFlight int

	// DedupWindow is how old an increment's time may be. Where that is more than the
	// deduplication window of the database, an increment in between becomes a dead letter.
	// Default countmill.DefaultDedupWindow.
	DedupWindow time.Duration

	// DedupWindowFunc says that where it may change. Default: always DedupWindow.
	DedupWindowFunc func() time.Duration

	// KnownKeys is how many Idempotency-Keys are remembered to refuse one that comes
	// with another body. Default 100,000.
	KnownKeys int

	// Logger gets a line when the bus does not take a message. Default none.
	Logger *slog.Logger

	// Env is for simulations. Leave it nil.
	Env *sysenv.Env
}

func (c Config) withDefaults() Config {
	c.Topic = cmp.Or(c.Topic, "countmill")
	c.Linger = cmp.Or(c.Linger, lingerWithin(c.CountWithin), 250*time.Millisecond)
	c.MaxEntries = cmp.Or(c.MaxEntries, 2_000_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 8)
	c.DedupWindow = cmp.Or(c.DedupWindow, countmill.DefaultDedupWindow)
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
	if c.DedupWindow < 0 {
		errs = append(errs, fmt.Errorf("DedupWindow must not be negative, got %s", c.DedupWindow))
	}
	if c.CountWithin != 0 && (c.CountWithin < MinCountWithin || c.CountWithin > MaxCountWithin) {
		errs = append(errs, fmt.Errorf("CountWithin must be from %s to %s, or 0 for none, got %s", MinCountWithin, MaxCountWithin, c.CountWithin))
	}
	return errors.Join(errs...)
}

// A Publisher coalesces increments and sends them. All its methods may be called at
// once. Close it, or what it holds is lost.
type Publisher struct {
	bus Bus
	cfg Config
	// together seals at multiples of the linger, by the wall clock.
	together bool
	wake     chan struct{} // to the sender: something changed; holds one

	seed    maphash.Seed // of places
	stripes [stripeCount]stripe
	open    gauge // what the open batch holds
	refused atomic.Int64

	// life ends when Close has run out of time. Messages carry it.
	life  context.Context
	abort context.CancelFunc

	started atomic.Bool   // the sender runs, or has run
	done    chan struct{} // closed when the sender has returned
	taken   harvest       // the sender's, used again for each seal

	deliveries sync.WaitGroup // waited for by the sender

	mu       sync.Mutex // for all below; taken alone or before a stripe's, never after
	closed   bool
	final    *harvest           // what Close took out of the stripes, until it is sealed
	past     []*harvest         // what turnLocked took out of them, oldest first
	requests *list.List         // of *request, admitted and not sealed, oldest first
	urgent   bool               // a Flush waits, or Close: no linger
	known    *knownKeys         // keys admitted
	seals    map[*seal]struct{} // not settled
	sealed   int                // seals so far
	queue    []*sealed          // messages that wait for a slot
	inFlight int
	busy     time.Duration // what the latest seal to be settled took, if it was large
	lost     error         // why the latest message has an unknown outcome for good
	lostAdds int64         // increments of Add in such messages
	stats    Stats
	health   health
}

// New returns a Publisher that sends over bus. It starts nothing: the sender starts
// with the first increment.
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
		bus:      bus,
		seed:     maphash.MakeSeed(),
		cfg:      cfg,
		together: together,
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		requests: list.New(),
		known:    newKnownKeys(cfg.KnownKeys),
		seals:    make(map[*seal]struct{}),
	}
	p.open.maxEntries, p.open.maxBytes = int64(cfg.MaxEntries), int64(cfg.MaxBytes)
	p.life, p.abort = context.WithCancel(context.Background())
	for i := range p.stripes {
		s := &p.stripes[i]
		s.open, s.env, s.many = &p.open, cfg.Env, manyAdds
		s.most = size{2 * (cfg.MaxEntries/stripeCount + minCells), int64(cfg.MaxBytes / stripeCount)}
	}
	return p, nil
}

// signal tells the sender that something changed, and starts it the first time.
func (p *Publisher) signal() {
	if !p.started.Load() && p.started.CompareAndSwap(false, true) {
		p.cfg.Env.Go(p.run)
	}
	select {
	case p.wake <- struct{}{}:
	default: // it has not looked yet since the last one
	}
}

// Close refuses new increments, sends what was accepted, and returns when the bus has
// all of it. When ctx ends first, or when the bus was closed, the error matches
// countmill.ErrOutcomeUnknown and says how many increments are not known to be durable;
// those of an Add that runs at the same time may or may not be among them. It does not
// wait longer than ctx for a bus that does not answer. A second Close returns
// ErrClosed.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return countmill.ErrClosed
	}
	p.closed, p.urgent = true, true
	p.final = p.harvest(new(harvest), true)
	idle := !p.started.Load() && p.final.increments == 0 && p.requests.Len() == 0
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

// unsettled is the error for what is not known to be durable, nil for nothing.
func (p *Publisher) unsettled(cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.stats.Unknown
	for s := range p.seals {
		n += s.increments
	}
	for e := p.requests.Front(); e != nil; e = e.Next() {
		n += e.Value.(*request).increments
	}
	if p.final != nil {
		n += p.final.increments
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
