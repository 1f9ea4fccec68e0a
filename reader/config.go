package reader

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/sysenv"
	"github.com/countmill/countmill/store"
)

// Config tunes a Reader. Its zero value works.
type Config struct {
	// DefaultStaleness is what a negative maxStaleness in a call of Totals means.
	// Default 0: such a call reads the store.
	DefaultStaleness time.Duration

	// TTL is how long the cache keeps a total. A caller that accepts older totals than
	// this gains nothing. Default 1m.
	TTL time.Duration

	// Timeout bounds each call of the store. Default 5s.
	Timeout time.Duration

	// CacheTimeout bounds each call of the cache. Default 100ms.
	// Keep it below what a read of the store takes when it is slow.
	CacheTimeout time.Duration

	// MaxShardsPerPage bounds the shards that one page of List reads; a page has at
	// least one counter. Default 5,000.
	MaxShardsPerPage int

	// Guess is how many shards are looked up with the record of a counter whose number
	// of shards is not remembered. One below the store's own start costs a second
	// look-up, one above it reads keys in vain. Default 1.
	Guess int

	// Remember is of how many counters the number of shards is remembered, some 150
	// bytes each. Default 65,536.
	Remember int

	// LagEvery is how old the aggregators' records may be before they are read again;
	// while none is fresh they are read every second. Default 5s.
	LagEvery time.Duration

	// CheckEvery is how long the store is taken to be the database that was opened
	// before it is asked again. Default 10s.
	CheckEvery time.Duration

	// Logger gets lifecycle and trouble. Default: discarded.
	Logger *slog.Logger

	// OnServe is called for every total served, with its age and its source. It must
	// be quick and safe for concurrent use. Default: none.
	OnServe func(age time.Duration, source string)

	// Env is for simulations. Leave it nil.
	Env *sysenv.Env
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, time.Minute)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.CacheTimeout = cmp.Or(c.CacheTimeout, 100*time.Millisecond)
	c.MaxShardsPerPage = cmp.Or(c.MaxShardsPerPage, 5000)
	c.Guess = cmp.Or(c.Guess, 1)
	c.Remember = cmp.Or(c.Remember, 1<<16)
	c.LagEvery = cmp.Or(c.LagEvery, 5*time.Second)
	c.CheckEvery = cmp.Or(c.CheckEvery, store.CheckEvery)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnServe == nil {
		c.OnServe = func(time.Duration, string) {}
	}
	return c
}

// validate reports everything that is wrong, not only the first thing.
func (c Config) validate() error {
	var errs []error
	for _, d := range []struct {
		name string
		val  time.Duration
	}{
		{"DefaultStaleness", c.DefaultStaleness}, {"TTL", c.TTL}, {"Timeout", c.Timeout},
		{"CacheTimeout", c.CacheTimeout}, {"LagEvery", c.LagEvery}, {"CheckEvery", c.CheckEvery},
	} {
		if d.val < 0 {
			errs = append(errs, fmt.Errorf("%s must not be negative, got %s", d.name, d.val))
		}
	}
	if c.MaxShardsPerPage < 0 {
		errs = append(errs, fmt.Errorf("MaxShardsPerPage must not be negative, got %d", c.MaxShardsPerPage))
	}
	if c.Guess < 0 || c.Guess > countmill.MaxShards {
		errs = append(errs, fmt.Errorf("Guess must be 0 to %d, got %d", countmill.MaxShards, c.Guess))
	}
	if c.Remember < 0 {
		errs = append(errs, fmt.Errorf("Remember must not be negative, got %d", c.Remember))
	}
	return errors.Join(errs...)
}
