package admin

import (
	"context"

	"github.com/countmill/countmill/store"
)

// Sums looks counters up.
type Sums interface {
	// Sum reads the counter's record and all its shards at one moment: it includes every fold
	// that was committed by then, and no later one. Errors match countmill.ErrUnavailable.
	Sum(ctx context.Context, counter string) (store.Sum, error)
}

// A Store is the part of a store that an Admin needs.
type Store interface {
	store.Reads
	store.Records
	store.Counters
	store.Meta
	// Ranges is the method of store.Indexing.
	Ranges(ctx context.Context, index int64) ([]store.IndexRange, error)
}
