package indexer

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/countmill/countmill/internal/clock"
)

// Config has the settings of an Indexer. Zero values mean the defaults.
type Config struct {
	// WorkerID names the worker in the ranges. It is required.
	WorkerID string
	// Lease is how long others leave a range to a worker that does not answer. Default 1 minute.
	Lease time.Duration
	// Every is how often Run looks for work. Default 5 seconds.
	Every time.Duration
	// Recheck is how old the reading of a range may be; 0 for any age. An increment that was folded
	// without an index can then be found, although none should be.
	Recheck time.Duration
	// Rate is the most shards that are read in a second; 0 for no limit.
	Rate int
	// CallTimeout is the time-out of each call to the store. Default 30 seconds.
	CallTimeout time.Duration
	// Logger gets the steps of indexes. Default slog.Default().
	Logger *slog.Logger
	// OnRules is called when an index begins to serve, or is gone.
	OnRules func(ctx context.Context)

	// Ranges is the number of ranges of a new index. Default 16.
	Ranges int
	// Page is the most shards that one call reads. Default 1,000.
	Page int
	// MostGroups is the most groups of a range in memory, of at most 600 bytes each. A range with more is
	// split. Default 100,000.
	MostGroups int

	env *clock.Env // of a simulation (clock.With), otherwise nil
}

var _ = clock.Hook(func(c *Config, e *clock.Env) { c.env = e })

const (
	defaultRanges     = 16
	defaultPage       = 1000
	defaultMostGroups = 100_000
)

func (c Config) withDefaults() Config {
	c.Lease, c.Every, c.CallTimeout = cmp.Or(c.Lease, time.Minute), cmp.Or(c.Every, 5*time.Second), cmp.Or(c.CallTimeout, 30*time.Second)
	c.Ranges, c.Page, c.MostGroups = cmp.Or(c.Ranges, defaultRanges), cmp.Or(c.Page, defaultPage), cmp.Or(c.MostGroups, defaultMostGroups)
	if c.Rate > 0 {
		c.Page = min(c.Page, c.Rate) // no wait between two pages is longer than a second, nor a lease over
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.OnRules == nil {
		c.OnRules = func(context.Context) {}
	}
	return c
}
