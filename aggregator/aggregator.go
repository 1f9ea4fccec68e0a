package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/internal/storetime"
	"github.com/countmill/countmill/store"
)

// A Bus delivers messages; Watermill's message.Subscriber is one. It must be able to
// have many messages unacknowledged at once, and deliver a message again that was not
// acknowledged, unless the message's context says that it never does (wire.DeliverOnce). A message that was
// delivered is the aggregator's, which takes payload and metadata out of it.
type Bus interface {
	Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error)
}

// An Aggregator folds the batches of a bus into a store. Run it once.
type Aggregator struct {
	bus    Bus
	store  Store
	cfg    Config
	limits store.Limits

	aging    *aging
	settings atomic.Pointer[snapshot]
	records  *records
	inflight *inflight
	clock    storetime.Clock
	stats    stats
	state    atomic.Pointer[state]

	// calls is what calls to the store run under. It ends when the drain's time is up.
	calls    context.Context
	endCalls context.CancelFunc
	ran      atomic.Bool
}

// New returns an aggregator of bus and store. The error names every field of cfg that
// is out of range.
func New(bus Bus, st Store, cfg Config) (*Aggregator, error) {
	limits := st.Limits()
	cfg = cfg.withDefaults(limits)
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	a := &Aggregator{bus: bus, store: st, cfg: cfg, limits: limits}
	a.clock.Env = cfg.Env
	a.aging = newAging(a.clock.Now)
	a.settings.Store(unread(a.aging.age()))
	a.records = newRecords(st, limits.Keys, cfg.Shards, cfg.Remember, a.aging)
	a.records.limit = cfg.CommitTimeout
	a.inflight = newInflight(&cfg, a.clock.Now)
	a.state.Store(&state{reason: errors.New("not started")})
	a.stats.waits.Store(new(wait))
	a.stats.replays.Store(new(wait))
	a.calls, a.endCalls = context.WithCancel(context.Background())
	return a, nil
}

// Run takes messages, folds them and acknowledges them until ctx ends. Then it stops
// taking, commits and acknowledges what it holds, gives back what it could not within
// DrainTimeout, and returns nil, or an error that says how much it gave back.
//
// It returns earlier only with an error: the bus is closed, or the outcome of a commit is
// unknown although the store promises certain ones (store.Limits.CertainOutcome). The process must then end,
// because what it holds can neither be acknowledged nor repeated.
func (a *Aggregator) Run(ctx context.Context) error {
	if a.ran.Swap(true) {
		return errors.New("aggregator: Run was called before")
	}
	defer a.endCalls()
	defer func() {
		a.state.Store(&state{reason: errors.New("stopped")})
		a.stats.taking.Store(false)
	}()
	return newLoop(a).run(ctx)
}

// maxSkew is how far the local clock may be from the store's before the aggregator
// says that it is not ready.
const maxSkew = time.Minute

// A state is why the aggregator is not ready; a nil reason means that it is.
type state struct {
	reason   error
	degraded string
}

// Ready returns nil while the aggregator takes and folds messages, else the reason why
// it does not.
func (a *Aggregator) Ready() error {
	if reason := a.state.Load().reason; reason != nil {
		return reason
	}
	if skew := a.clock.Skew(); skew > maxSkew {
		return fmt.Errorf("the local clock and the store's differ by %s, at most %s is safe", skew, maxSkew)
	}
	return nil
}

// Degraded returns what waits while the aggregator is ready; empty for nothing.
func (a *Aggregator) Degraded() string { return a.state.Load().degraded }

func randomName(random io.Reader) string {
	var b [8]byte
	_, _ = random.Read(b[:]) // never fails
	return fmt.Sprintf("%x", b)
}
