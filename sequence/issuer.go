package sequence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Config tunes an Issuer. Its zero value works.
type Config struct {
	// Timeout bounds a call, repeats included. Default 10s.
	Timeout time.Duration

	// CallTimeout bounds each call of the store. Default 5s.
	CallTimeout time.Duration

	// MaxCalls is the most calls that wait for values; one more is refused. Default 10,000: with names and
	// ids of the largest size they take some 10 MB.
	MaxCalls int

	// MaxCallsOfOne is the most calls that wait for values of one sequence, so that a busy sequence leaves
	// room for others. Default 1,000.
	MaxCallsOfOne int

	// Transactions is the most transactions at once. Default 100. A guess: a transaction of Datastore
	// takes some 30 ms, and the store has other work.
	Transactions int

	// Logger gets a line for each deleted sequence. Default: discards.
	Logger *slog.Logger

	env *clock.Env // of a simulation (clock.With), otherwise nil
}

var _ = clock.Hook(func(c *Config, e *clock.Env) { c.env = e })

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 5*time.Second)
	c.MaxCalls = cmp.Or(c.MaxCalls, 10_000)
	c.MaxCallsOfOne = cmp.Or(c.MaxCallsOfOne, 1_000)
	c.Transactions = cmp.Or(c.Transactions, 100)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports every problem at once.
func (c Config) validate() error {
	var errs []error
	for _, v := range []struct {
		name string
		bad  bool
		val  any
	}{
		{"Timeout", c.Timeout < 0, c.Timeout}, {"CallTimeout", c.CallTimeout < 0, c.CallTimeout}, {"MaxCalls", c.MaxCalls < 0, c.MaxCalls},
		{"MaxCallsOfOne", c.MaxCallsOfOne < 0, c.MaxCallsOfOne}, {"Transactions", c.Transactions < 0, c.Transactions},
	} {
		if v.bad {
			errs = append(errs, fmt.Errorf("%s must not be negative, got %v", v.name, v.val))
		}
	}
	return errors.Join(errs...)
}

// A Store is the part of a store that an Issuer needs.
type Store interface {
	store.Sequences
	Check(ctx context.Context) (store.Checked, error)
}

// An Issuer gives out values. It is safe for concurrent use. Close it before its store.
type Issuer struct {
	store Store
	cfg   Config
	clock clock.Store
	known known // the settings
	stats counts

	calls  context.Context // of the store; ended by Close at its latest
	cancel context.CancelFunc

	mu      sync.Mutex
	queues  map[string]*queue
	ready   []*queue // they have calls and wait for a turn, the first one longest
	running int      // transactions
	waiting int      // calls
	closed  bool
	empty   chan struct{} // closed when the Issuer is closed and nothing runs
}

// New returns an Issuer of the sequences in s. The error reports all that is wrong with the config.
func New(s Store, cfg Config) (*Issuer, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("sequence: %w", err)
	}
	x := &Issuer{store: s, cfg: cfg.withDefaults(), queues: make(map[string]*queue), empty: make(chan struct{})}
	x.clock.Env, x.known.checking = x.cfg.env, make(chan struct{}, 1)
	x.calls, x.cancel = context.WithCancel(context.Background())
	return x, nil
}

// Next returns the next values of a sequence when they are durable. The package comment has the promise
// and the errors. You may repeat a request with an ID after any error.
func (x *Issuer) Next(ctx context.Context, r countmill.NextRequest) (countmill.Values, error) {
	if err := x.check(&r); err != nil {
		return countmill.Values{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	c := x.newCall(&r)
	if err := x.enter(r.Sequence, c); err != nil {
		return countmill.Values{}, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		x.leave(r.Sequence, c, ctx.Err())
	}
	if c.err != nil {
		return countmill.Values{}, fmt.Errorf("next value of sequence %q: %w", r.Sequence, c.err)
	}
	return countmill.Values{First: c.given.First, Last: c.given.First + int64(c.given.Count) - 1}, nil
}

func (x *Issuer) check(r *countmill.NextRequest) error {
	if err := r.Check(); err != nil {
		return err
	}
	if !r.Time.IsZero() && (!wire.InRange(r.Time) || r.Time.After(x.clock.Now().Add(store.MaxAhead))) {
		return &countmill.FieldError{Field: "time", Problem: "is out of range", Limit: "from 1970 to " + store.MaxAhead.String() + " ahead"}
	}
	return nil
}

func (x *Issuer) newCall(r *countmill.NextRequest) *call {
	c := &call{asked: r.Time, done: make(chan struct{})}
	c.take.Count = cmp.Or(r.Count, 1)
	if r.ID != "" {
		c.take.ID = wire.SequenceID(r.Sequence, r.ID)
		return c
	}
	// A random id makes the repeats of a transaction safe.
	c.take.ID = wire.RandomID(x.cfg.env, wire.SequenceClass)
	return c
}

// Close refuses new calls and waits for the running ones. If ctx ends first, Close cancels the
// calls of the store and returns an error; callers learn that their outcomes are unknown.
func (x *Issuer) Close(ctx context.Context) error {
	x.mu.Lock()
	if !x.closed {
		x.closed = true
		x.endLocked()
	}
	x.mu.Unlock()
	defer x.cancel()
	select {
	case <-x.empty:
		return nil
	case <-ctx.Done():
		return errors.New("calls for values of sequences were not done in time")
	}
}

// endLocked reports the end of the last work of a closed Issuer.
func (x *Issuer) endLocked() {
	if x.closed && len(x.queues) == 0 && x.running == 0 {
		select {
		case <-x.empty:
		default:
			close(x.empty)
		}
	}
}
