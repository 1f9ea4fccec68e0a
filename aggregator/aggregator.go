package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// A Bus delivers messages; Watermill's message.Subscriber is one. It must allow many
// unacknowledged messages at once. It must deliver an unacknowledged message again, unless the
// message's context says that it never does (wire.DeliverOnce). A delivered message belongs to
// the aggregator, which clears its payload and metadata.
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
	usable   atomic.Bool           // the last check of the database went well
	adder    atomic.Pointer[state] // why no increments of other programs can be folded
	asked    chan chan struct{}    // to read the settings at once; the inner one is closed then
	records  *records
	inflight *inflight
	folded   chan struct{} // has an element if takeAdded has released shards since the loop looked
	clock    clock.Store
	stats    stats
	// beatsMissed is the heartbeats in a row that were not written.
	beatsMissed atomic.Int64
	busiest     busiest
	state       atomic.Pointer[state]

	// calls is the context of calls to the store. It ends when DrainTimeout is over.
	calls    context.Context
	endCalls context.CancelFunc
	ran      atomic.Bool
}

// New returns an aggregator that reads bus and writes st. The error names every field of cfg that
// is out of range.
func New(bus Bus, st Store, cfg Config) (*Aggregator, error) {
	limits := st.Limits()
	cfg = cfg.withDefaults(limits)
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	a := &Aggregator{bus: bus, store: st, cfg: cfg, limits: limits, asked: make(chan chan struct{}), folded: make(chan struct{}, 1)}
	a.clock.Env = cfg.env
	a.aging = newAging(a.clock.Now)
	a.settings.Store(unread(a.aging.age()))
	a.records = newRecords(st, limits.Keys, cfg.Shards, cfg.Remember, a.aging)
	a.records.limit = cfg.CommitTimeout
	a.inflight = newInflight(&cfg, a.clock.Now)
	a.state.Store(&state{reason: errors.New("not started")})
	a.adder.Store(&state{})
	a.stats.waits.Store(new(wait))
	a.stats.added.Store(new(wait))
	a.stats.replays.Store(new(wait))
	a.calls, a.endCalls = context.WithCancel(context.Background())
	return a, nil
}

// Run takes messages, folds them and acknowledges them until ctx ends. Then it takes no more
// messages, commits and acknowledges the ones that it holds, and gives the rest back to the bus
// after DrainTimeout. It returns nil, or an error with the number of messages given back.
//
// It returns earlier only with an error: the bus is closed, or the outcome of a commit is unknown
// although the store promises certain outcomes (store.Limits.CertainOutcome). The process must
// then end, because it can neither acknowledge nor repeat the messages that it holds.
func (a *Aggregator) Run(ctx context.Context) error {
	if a.ran.Swap(true) {
		return errors.New("aggregator: Run was called before")
	}
	defer a.endCalls()
	defer func() {
		a.state.Store(&state{reason: errors.New("stopped")})
		a.stats.taking.Store(false)
	}()
	l := newLoop(a)
	adder, ok := a.store.(store.Adder)
	if !ok {
		return l.run(ctx)
	}
	taking, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	a.cfg.env.Go(func() {
		defer close(ended)
		a.takeAdded(taking, adder)
	})
	defer func() {
		stop()
		defer time.AfterFunc(time.Until(l.deadline), a.endCalls).Stop() // a commit that is aborted is safe: takeAdded
		<-ended
	}()
	return l.run(ctx)
}

// maxSkew is the largest difference between the local clock and the store's at which the
// aggregator is ready.
const maxSkew = time.Minute

// A state is the reason why the aggregator is not ready; a nil reason means that it is ready.
type state struct {
	reason   error
	degraded string
}

// Ready returns nil while the aggregator takes and folds messages, and otherwise the reason why
// it does not.
func (a *Aggregator) Ready() error {
	if reason := a.state.Load().reason; reason != nil {
		return reason
	}
	if reason := a.adder.Load().reason; reason != nil {
		return fmt.Errorf("increments of other programs are not folded: %w", reason)
	}
	if skew := a.clock.Skew(); skew > maxSkew {
		return fmt.Errorf("the local clock differs from the store's by %s (limit: %s); set the clock", skew, maxSkew)
	}
	return nil
}

// Degraded describes the work that waits while the aggregator is ready, and heartbeats that are not written; empty if there is
// nothing of it.
func (a *Aggregator) Degraded() string {
	waits := a.state.Load().degraded
	if missed := a.beatsMissed.Load(); missed >= fewBeats {
		waits = strings.TrimPrefix(waits+"; "+fmt.Sprintf("the last %d heartbeats were not written, so readers take this aggregator for dead: the store is slow or refuses", missed), "; ")
	}
	return waits
}

func randomName(random io.Reader) string {
	var b [8]byte
	_, _ = random.Read(b[:]) // never fails
	return fmt.Sprintf("%x", b)
}
