package reader

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const (
	// cacheTTL is how long the cache keeps a total. Accepting older totals gains nothing.
	cacheTTL = time.Minute
	// cacheTimeout bounds each call to the cache. It is below the time of a slow read of the store.
	cacheTimeout = 100 * time.Millisecond
	// maxShardsPerPage bounds the number of shards that one page of List reads.
	maxShardsPerPage = 5000
)

// Config tunes a Reader. Its zero value works.
type Config struct {
	// DefaultStaleness replaces a negative maxStaleness in a call of Totals. Default 0: such a
	// call reads the store.
	DefaultStaleness time.Duration

	// Timeout bounds each call to the store. Default 5s.
	Timeout time.Duration

	// Guess is the number of shards that are looked up with the record of a counter, if its
	// number of shards is not remembered. Too low a guess costs a second look-up; too high a
	// guess reads missing keys. Default 1.
	Guess int

	// Remember is the number of counters whose number of shards is remembered, some 150 bytes
	// each. Default 65,536.
	Remember int

	// LagEvery is the age at which the aggregators' records are read again. While none is fresh
	// they are read every second. Default 5s.
	LagEvery time.Duration

	// CheckEvery is the interval at which the store is asked whether it is still the database
	// that was opened. Default 10s.
	CheckEvery time.Duration

	// KeysAtOnce is about the most keys that are read at once. Callers take turns (WithCaller). Datastore's answer takes
	// some 2.6 KB of memory for a key. A store in this process needs a processor for each 1,000 of them. Default 32,768.
	KeysAtOnce int

	// BoardAge is the age at which a board is made again, if somebody asks for it and a sum has changed.
	// Default 10s.
	BoardAge time.Duration

	// BoardRate is how many entities a second a scan for a board may read, where reads cost
	// money: in a store that other processes fold to. Default 0: no boards are made of such a store. A negative
	// one says that they cost nothing.
	BoardRate int

	// Database identifies the store's database in receipts. Default 0: receipts of all
	// databases are looked for.
	Database wire.DatabaseTag

	// Logger gets failures of the store and of the cache. Default: discards.
	Logger *slog.Logger

	// OnServe is called for every served total, with its age and source. It must be quick and
	// allow concurrent calls. Default: none.
	OnServe func(age time.Duration, source string)

	boardSize int // board.Size, but in tests

	env *clock.Env // of a simulation (clock.With), otherwise nil
}

var _ = clock.Hook(func(c *Config, e *clock.Env) { c.env = e })

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.Guess = cmp.Or(c.Guess, 1)
	c.Remember = cmp.Or(c.Remember, 1<<16)
	c.LagEvery = cmp.Or(c.LagEvery, 5*time.Second)
	c.KeysAtOnce = cmp.Or(c.KeysAtOnce, 32<<10)
	c.BoardAge = cmp.Or(c.BoardAge, 10*time.Second)
	c.boardSize = cmp.Or(c.boardSize, board.Size)
	c.CheckEvery = cmp.Or(c.CheckEvery, store.CheckEvery)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnServe == nil {
		c.OnServe = func(time.Duration, string) {}
	}
	return c
}

// validate reports every problem at once.
func (c Config) validate() error {
	var errs []error
	for _, d := range []struct {
		name string
		val  time.Duration
	}{
		{"DefaultStaleness", c.DefaultStaleness}, {"Timeout", c.Timeout}, {"LagEvery", c.LagEvery}, {"CheckEvery", c.CheckEvery}, {"BoardAge", c.BoardAge},
	} {
		if d.val < 0 {
			errs = append(errs, fmt.Errorf("%s must not be negative, got %s", d.name, d.val))
		}
	}
	if c.KeysAtOnce < 0 {
		errs = append(errs, fmt.Errorf("KeysAtOnce must not be negative, got %d", c.KeysAtOnce))
	}
	if c.Guess < 0 || c.Guess > countmill.MaxShards {
		errs = append(errs, fmt.Errorf("Guess must be from 0 to %d, got %d", countmill.MaxShards, c.Guess))
	}
	if c.Remember < 0 {
		errs = append(errs, fmt.Errorf("Remember must not be negative, got %d", c.Remember))
	}
	return errors.Join(errs...)
}
