package store

import (
	"context"
	"time"

	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
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
	// Exists is false if the store has nothing under the key. The rest is then 0.
	Exists bool
	// Shards is the number of shards in a record.
	Shards int
	// Count is the count of a shard.
	Count int128.Int
	// Reset is the reset state of a record.
	Reset ResetState
	// Bucketed is the part of a shard's count that was added together with buckets of a series.
	// The rest is without a curve.
	Bucketed int128.Int
	// Remainder is, in the record of a group, what its counters had counted without the group (Index).
	Remainder int128.Int
}

// A View is the store as it was at one moment. It is not safe for concurrent use, but after its first call has
// answered, calls of Series may run beside each other.
type View interface {
	// Lookup answers the keys in the order asked. The first call fixes the view's moment; all further calls and List read at that moment.
	Lookup(ctx context.Context, keys []Key) ([]Value, error)

	// List returns up to limit records, also of deleted counters, in the byte order of their
	// names. Names begin with prefix and come after after.
	List(ctx context.Context, prefix, after string, limit int) ([]Record, error)

	// Series returns the buckets of each counter, in the order asked: the buckets that begin at from or later and
	// before to, in the order of their first minutes, a minute before the quarter hour that begins
	// with it. All sums are as of the view's moment. Shards is the number that a record has in this
	// view: a store need not look at shards beyond it. The rest of a record does not matter.
	Series(ctx context.Context, of []Record, from, to wire.Minute) ([][]Bucket, error)

	// ReadTime is the view's moment: the view has every fold that was committed by then. It
	// is zero before the first call.
	ReadTime() time.Time

	// Close releases the view. It may be called twice.
	Close()
}

// LookupKeys is how many keys a caller asks for at once. A Lookup takes any number, and this bounds its memory and its time.
const LookupKeys = 1000

// Reads opens views. Concurrent calls are allowed.
type Reads interface {
	// View opens a view. It costs next to nothing until the first call.
	View() View
}

// A Record is a counter's number of shards and its reset state.
type Record struct {
	Counter string
	Shards  int
	Reset   ResetState
	// Remainder is that of a group: see Value.
	Remainder int128.Int
}
