package reader

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill/store"
)

// RecordKey is the Shard of a key that asks for the counter's record.
const RecordKey = -1

// A Key asks for a shard of a counter, or for its record.
type Key struct {
	Counter string
	Shard   int // RecordKey, or from 0
}

// A Value answers a key.
type Value struct {
	// Exists is false where the store has nothing under the key. Value is then 0.
	Exists bool
	// Deferred means that the store did not look this time: ask again in the same view.
	Deferred bool
	// Value is the number of shards in a record, or the count of a shard.
	Value int64
	// Reset is what a record says beside it.
	Reset Reset
	// Overflow means that the shard's count left int64 or stands at either end of it.
	Overflow bool
}

// A Reset is what resets have left in a counter's record; zero where there were none.
type Reset struct {
	// Baseline is what the total is less than the sum of the shards.
	Baseline int64
	// At is the moment that Baseline is the sum of.
	At time.Time
	// DeletedAt is zero for a counter that is not deleted. One that is deleted exists again
	// while its sum differs from Baseline.
	DeletedAt time.Time
}

// A View is the store as it was at one moment. It is not safe for concurrent use.
type View interface {
	// Lookup answers each key, in the order asked, at most Keys of the store. The
	// first call fixes the view's moment; all further calls and List read at it.
	Lookup(ctx context.Context, keys []Key) ([]Value, error)

	// List returns up to limit counters that have a record, deleted ones too, and whose names
	// begin with prefix and come after after, in byte order, with what their records say.
	List(ctx context.Context, prefix, after string, limit int) ([]Record, error)

	// ReadTime is the view's moment: every fold committed by then is in it. It is zero
	// before the first call.
	ReadTime() time.Time

	// Close releases the view. It may be called twice.
	Close()
}

// A Record names a counter's number of shards.
type Record struct {
	Counter string
	Shards  int
	Reset   Reset
}

// A Worker is what an aggregator last said of itself.
type Worker struct {
	ID         string
	Lag        time.Duration
	Stalled    bool // it takes no messages, so Lag does not cover the bus
	LastCommit time.Time
	Expires    time.Time
	// Entries folded and Commits made since the worker started.
	Entries, Commits int64
	// Settings is the version of the settings that it goes by; 0 before the first check.
	Settings int64
}

// ErrOtherDatabase is an error of Check: this is not the database that was opened. No total is
// served from then on until a Check finds the right one, from a cache neither.
var ErrOtherDatabase = errors.New("another database")

// A Store is where totals are read. Concurrent calls are allowed.
type Store interface {
	// Keys is the most keys of one Lookup; at least 1,000.
	Keys() int

	// View opens a view. It costs next to nothing until the first call.
	View() View

	// Workers returns the records of all aggregators, stale ones too.
	Workers(ctx context.Context) ([]Worker, error)

	// Check reports whether this is still the database that was opened, with ErrOtherDatabase
	// if it certainly is not. It returns the store's time, or a zero time where that is the
	// machine's own, and the settings that are in effect.
	Check(ctx context.Context) (store.Checked, error)
}

// A Cached is a total as a cache keeps it, in one value with its name and its moment:
// apart they could be mixed up.
type Cached struct {
	Counter string
	Total   int64
	Shards  int
	Exists  bool
	AsOf    time.Time
}

// A Cache keeps totals for a while. It may forget any of them at any time. The reader
// takes every error as a miss. Concurrent calls are allowed.
type Cache interface {
	// Get returns what it has of the counters, in any order.
	Get(ctx context.Context, counters []string) ([]Cached, error)

	// Set keeps each total for about ttl, unless it has one with a later AsOf.
	Set(ctx context.Context, totals []Cached, ttl time.Duration) error

	// Lock returns true to the first caller and false to others until ttl has passed
	// or Unlock was called: one process refreshes a counter, the others wait a moment.
	Lock(ctx context.Context, counter string, ttl time.Duration) (bool, error)
	Unlock(ctx context.Context, counter string) error
}
