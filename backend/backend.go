// Package backend says how countmill opens a store, a bus or a cache by its URL. The packages
// below it are one technology each; they know nothing of each other and nothing of the roles.
//
// A backend of another module joins the same way: it returns a [Store] or a [Bus] for
// command.WithStore and command.WithBus, and its own suite calls the tests of store/storetest or backend/bustest.
package backend

import (
	"context"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/store"
)

// A Store opens stores of one scheme.
type Store struct {
	// Scheme is the word before the colon of the URL, Usage the form of the whole URL.
	Scheme, Usage string
	// Params are the parameters that the URL may have.
	Params []string
	// OneProcess means that two processes cannot have the store open at once. Only
	// `countmill up` then takes it.
	OneProcess bool
	// FreeReads means that reads cost no money and little time, as those of one process. Totals are then read from the store unless their callers
	// accept older ones, and scans for leaderboards need no rate.
	FreeReads bool
	// Check refuses a URL that Open would refuse, without opening anything. nil refuses none.
	Check func(u URL) error
	// Open opens the store. It must end with ctx.
	Open func(ctx context.Context, u URL, c StoreConfig) (store.Store, error)
	// Examine looks for mistakes of the store and of the way to it, from this machine. It must end with
	// ctx, and must work beside processes that have the store open. c.ReadOnly is true if the examined
	// account may be that of a reader, which need not write. nil looks for none.
	Examine func(ctx context.Context, u URL, c StoreConfig, r *Report)
}

// A StoreConfig has the demands of the process on a store.
type StoreConfig struct {
	// Window is the deduplication window of a new database, and 0 for the default of 8 days.
	Window time.Duration
	// ReadOnly is true for a process without an aggregator: the store writes nothing at its
	// opening.
	ReadOnly bool
	// Create allows the store to create its meta record. Otherwise a store that several
	// processes share refuses to open an empty database.
	Create bool
	Logger *slog.Logger
}

// A Disk is a store on a disk of this machine.
type Disk interface {
	store.Store
	// Dir is the directory of the store.
	Dir() string
	// DiskUsage is the number of bytes that the store uses.
	DiskUsage() uint64
	// Written is the number of bytes written to logs and to tables since the store was opened. Together they are the bytes
	// written to the disk; as a multiple of those of logs, the write amplification.
	Written() (logs, tables uint64)
	// FileSystem returns the free bytes and the size of the file system of Dir.
	FileSystem() (free, size uint64, err error)
	// Writable returns nil, or why the store refuses to begin a commit now. It is cheap.
	Writable() error
	// ID identifies the database. Copies of it have the same. It has 1 to 64 letters, digits, _ and -, because
	// names of backups have it.
	ID() string
	// Checkpoint calls use with the directory of a copy of the store, which can be opened like it,
	// and removes the copy when use returns. The copy has every fold that returned before the call.
	// Tables of two copies with the same name have the same content while the store is open. The ctx of use ends with
	// that of the call and with Close. use must not call the store's methods other than Dir and ID.
	Checkpoint(ctx context.Context, use func(ctx context.Context, dir string) error) error
}

// A Pooled store has connections to a server.
type Pooled interface {
	Pool() PoolStats
}

// PoolStats are connections of a store: their present numbers, the most, and how many calls have waited for one.
type PoolStats struct{ Used, Idle, Most, Waits int64 }

// A Restorable store knows when it last may have lost its end: by a failover, or a backup that was restored. It is zero for never.
type Restorable interface {
	Restored() time.Time
}

// Moments is a store that gives out the moments of its views without a read. Every view whose
// moment is not before that of a call shows all folds that returned before the call.
type Moments interface {
	Moment() time.Time
}

// A Bus opens buses of one scheme.
type Bus struct {
	// Scheme, Usage and Params are those of Store.
	Scheme, Usage string
	Params        []string
	// OneProcess means that the bus reaches nobody outside the process. Only `countmill up` then
	// takes it. Publish must return only after the message was acknowledged, and must fail when
	// the bus is closed.
	OneProcess bool
	// Check refuses a URL that Open would refuse. nil refuses none.
	Check func(u URL, c BusConfig) error
	// Open connects to the bus. It must end with ctx.
	Open func(ctx context.Context, u URL, c BusConfig) (OpenBus, error)
	// Examine looks for mistakes of the bus, as that of Store does.
	Examine func(ctx context.Context, u URL, r *Report)
}

// A BusConfig has the demands of the process on a bus.
type BusConfig struct {
	// Publish and Receive say which directions the process uses.
	Publish, Receive bool
	// Create allows the bus to create a missing topic or subscription.
	Create bool
	// Messages and Bytes bound the messages that are delivered and not acknowledged.
	Messages, Bytes int
	Logger          *slog.Logger
}

// An Observer is a bus that knows its messages that no subscriber has taken.
type Observer interface {
	// Unseen returns the age of the oldest of them, 0 if there is none.
	Unseen() time.Duration
}

// A Counting bus counts its messages, for /metrics.
type Counting interface {
	Stats() BusStats
}

// BusStats are counts of a bus since it was opened.
type BusStats struct {
	// Deliveries counts the messages that the broker sent here. Redeliveries counts those among them that
	// it had sent before, to any process, as far as it says so.
	Deliveries, Redeliveries int64
	// Acks and Nacks count the acks and nacks that were sent. A message that was not settled when its
	// subscription ended is a nack.
	Acks, Nacks int64
	// AcksLost counts acks that had not been sent when the subscription ended: those messages are delivered
	// again.
	AcksLost int64
	// Held is the number of messages here that are not settled.
	Held int64
	// StreamErrors counts connections to the broker that ended with an error or could not be opened.
	StreamErrors int64
}

// A Channel is a bus in Watermill's two interfaces.
type Channel interface {
	message.Publisher
	message.Subscriber
}

// An OpenBus is a connected bus.
type OpenBus struct {
	Channel
	// Topic is the topic of batches; empty for the default of the roles.
	Topic string
	// Ready returns the reason why no messages arrive. nil if the bus has no such reason.
	Ready func() error
	// GivenUp has the messages that the bus has given up delivering, under GivenUpTopic. nil if
	// nobody keeps them.
	GivenUp      message.Subscriber
	GivenUpTopic string
}

// A Cache opens caches of one scheme.
type Cache struct {
	Scheme, Usage string
	Params        []string
	// Check refuses a URL that Open would refuse. nil refuses none.
	Check func(u URL) error
	// Open opens the cache of a store. Close releases it; it is nil if there is nothing to
	// release.
	Open func(u URL, s store.Store) (c store.Cache, closeIt func() error, err error)
	// Examine looks for mistakes of the cache, as that of Store does.
	Examine func(ctx context.Context, u URL, r *Report)
}
