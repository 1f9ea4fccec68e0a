package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Config tunes an Admin. Its zero value works.
type Config struct {
	// Timeout bounds a call, repeats included. Default 10s.
	Timeout time.Duration

	// CallTimeout bounds each call of the store. Default 5s.
	CallTimeout time.Duration

	// OnRules is called after each change of the rules, for CallTimeout at most. An aggregator of this
	// process can learn of the change there. Default: nothing is called.
	OnRules func(ctx context.Context)

	// Logger gets a line for everything that was done. Default: discards.
	Logger *slog.Logger

	env *clock.Env // of a simulation (clock.With), otherwise nil
}

var _ = clock.Hook(func(c *Config, e *clock.Env) { c.env = e })

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 5*time.Second)
	if c.OnRules == nil {
		c.OnRules = func(context.Context) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports every problem at once.
func (c Config) validate() error {
	var errs []error
	for _, d := range []struct {
		name string
		val  time.Duration
	}{{"Timeout", c.Timeout}, {"CallTimeout", c.CallTimeout}} {
		if d.val < 0 {
			errs = append(errs, fmt.Errorf("%s must not be negative, got %s", d.name, d.val))
		}
	}
	return errors.Join(errs...)
}

// An Admin looks after counters. It is safe for concurrent use and has nothing to close.
type Admin struct {
	sums  Sums
	store Store
	cfg   Config
	stats counts
}

// New returns an admin of the counters in store, which sums looks up. The error reports all
// that is wrong with the config.
func New(sums Sums, counters Store, cfg Config) (*Admin, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	return &Admin{sums: sums, store: counters, cfg: cfg.withDefaults()}, nil
}

// Stats counts the changes since the start.
type Stats struct{ Grown, Resets, Deletes int64 }

type counts struct{ grown, resets, deletes atomic.Int64 }

// Stats returns the number of changes since the start.
func (a *Admin) Stats() Stats {
	return Stats{a.stats.grown.Load(), a.stats.resets.Load(), a.stats.deletes.Load()}
}

// A LowerError is a raise that would have lowered a counter's number of shards.
type LowerError struct {
	Counter      string
	Asked, Named int
}

func (e *LowerError) Error() string {
	return fmt.Sprintf("counter %q has %d shards, and a number of shards is never lowered (asked for: %d)", e.Counter, e.Named, e.Asked)
}

// Grow makes sure that the counter has that many shards. It creates a counter that nobody has
// incremented. Aggregators learn of the new shards within the hour, and use them. Errors match
// countmill.ErrInvalid, countmill.ErrUnavailable and countmill.ErrOutcomeUnknown, or are a
// *LowerError. You may repeat Grow.
func (a *Admin) Grow(ctx context.Context, counter string, shards int) error {
	if err := countmill.CheckName(counter); err != nil {
		return err
	}
	if shards < 1 || shards > countmill.MaxShards {
		return &countmill.FieldError{Field: "shards", Problem: "is out of range", Limit: "1 to " + strconv.Itoa(countmill.MaxShards)}
	}
	if err := a.checkGroup(ctx, counter); err != nil {
		return fmt.Errorf("raise counter %q: %w", counter, err)
	}
	named := 0
	err := a.retry(ctx, func(ctx context.Context) error {
		v := a.store.View()
		defer v.Close()
		record, err := v.Lookup(ctx, []store.Key{{Counter: counter, Shard: store.RecordKey}})
		if err != nil {
			return err
		}
		if named = record[0].Shards; named > shards {
			return nil // what is refused changes nothing, and leaves a deleted counter deleted
		}
		return a.store.Grow(ctx, []store.Growth{{Counter: counter, Shards: shards}})
	})
	if err != nil {
		return fmt.Errorf("raise counter %q: %w", counter, err)
	}
	if named > shards {
		return &LowerError{counter, shards, named}
	}
	a.stats.grown.Add(1)
	a.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "counter raised", slog.String("counter", counter), slog.Int("shards", shards))
	return nil
}

// A Done is the effect of a reset or a delete.
type Done struct {
	store.ResetResult
	// Existed is false for a counter that nobody had incremented, since its delete if there was
	// one. Its name may be mistyped.
	Existed bool
}

// Reset sets the counter's total back to 0, and returns the removed total. With an id, 1 to 128
// bytes, a repeat within the deduplication window changes nothing and returns the same. An empty
// id is the same as no id.
// Errors match countmill.ErrInvalid, countmill.ErrUnavailable, and
// countmill.ErrOutcomeUnknown, after which only a repeat with the same id is safe.
func (a *Admin) Reset(ctx context.Context, counter, id string) (Done, error) {
	key := a.randomID()
	if id != "" {
		if err := countmill.CheckID("id", id); err != nil {
			return Done{}, err
		}
		key = wire.ResetID(counter, id)
	}
	done, err := a.reset(ctx, store.ResetRequest{ID: key, Counter: counter})
	if err != nil {
		return Done{}, fmt.Errorf("reset counter %q: %w", counter, err)
	}
	a.stats.resets.Add(1)
	a.log(ctx, "counter reset", counter, done)
	return done, nil
}

// Delete sets the counter's total back to 0 and hides it until it is incremented again.
// Errors are those of Reset; it may always be repeated.
func (a *Admin) Delete(ctx context.Context, counter string) (Done, error) {
	done, err := a.reset(ctx, store.ResetRequest{ID: a.randomID(), Counter: counter, Delete: true})
	if err != nil {
		return Done{}, fmt.Errorf("delete counter %q: %w", counter, err)
	}
	a.stats.deletes.Add(1)
	a.log(ctx, "counter deleted", counter, done)
	return done, nil
}

func (a *Admin) log(ctx context.Context, message, counter string, done Done) {
	a.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, message, slog.String("counter", counter),
		slog.String("removed", done.Removed.String()), slog.Time("as_of", done.At))
}

// randomID lets a reset without an id be tried again: the marker shows whether it was applied.
func (a *Admin) randomID() wire.PartID {
	return wire.RandomID(a.cfg.env, wire.ResetClass)
}

func (a *Admin) reset(ctx context.Context, r store.ResetRequest) (done Done, err error) {
	if countmill.IsGroup(r.Counter) {
		return Done{}, errGroup(r.Counter)
	}
	if err := countmill.CheckName(r.Counter); err != nil {
		return Done{}, err
	}
	var first time.Time
	err = a.retry(ctx, func(ctx context.Context) (err error) {
		// The sum and its moment belong together, and so each new try looks again. Its look
		// may be older than another caller's reset, but is never of two moments.
		if r.Look, err = a.sums.Sum(ctx, r.Counter); err != nil {
			return undone{err}
		}
		done.Existed = done.Existed || exists(&r.Look) // at the first look: a try that was lost may have deleted it
		// The settings are younger than the look-up, which is not applied when it is old.
		checked, err := a.store.Check(ctx)
		if err != nil {
			return undone{fmt.Errorf("%w: reading the settings: %w", countmill.ErrUnavailable, err)}
		}
		switch {
		case first.IsZero():
			first = r.Look.At
		case checked.Settings.Refuses(first):
			return errForgotten // the machine was suspended
		}
		r.At, r.ExpireAt = r.Look.At, checked.Settings.Expiry(r.Look.At, r.Look.At)
		// Each try has the same id: the marker shows whether an earlier try was applied.
		done.ResetResult, err = a.store.ResetCounter(ctx, r)
		return err
	})
	return done, err
}

// exists reports whether a counter exists for readers: a deleted one exists again when it is
// incremented.
func exists(look *store.Sum) bool {
	return look.Exists && (look.DeletedAt.IsZero() || look.Sum != look.Baseline)
}

// errForgotten ends a reset whose first try may have been applied, and whose marker may be
// gone by now: another try could remove more, and say less.
var errForgotten = errors.New("the first try was longer ago than ids are remembered")
