package store

import (
	"context"
	"time"
)

// A CachedTotal is a total as a cache keeps it: one value with the name and the moment, because
// separate values could be mixed up.
type CachedTotal struct {
	Counter string
	Total   int64
	Shards  int
	Exists  bool
	AsOf    time.Time
}

// A Cache keeps totals for a while. It may forget any of them at any time. The reader
// takes every error as a miss. Concurrent calls are allowed.
type Cache interface {
	// Get returns the totals that it has of these counters, in any order.
	Get(ctx context.Context, counters []string) ([]CachedTotal, error)

	// Set keeps each total for about ttl, unless it has one with a later AsOf.
	Set(ctx context.Context, totals []CachedTotal, ttl time.Duration) error

	// Lock returns true to the first caller, and false to others until ttl has passed or
	// Unlock was called. So one process refreshes a counter while others wait a moment.
	Lock(ctx context.Context, counter string, ttl time.Duration) (bool, error)
	Unlock(ctx context.Context, counter string) error
}
