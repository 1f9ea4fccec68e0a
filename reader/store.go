package reader

import (
	"context"

	"github.com/countmill/countmill/store"
)

// A Store is the part of a store that a Reader needs. Concurrent calls are allowed.
type Store interface {
	store.Reads

	// Workers is the method of store.Heartbeat.
	Workers(ctx context.Context) ([]store.Worker, error)

	// Check is the method of store.Meta.
	Check(ctx context.Context) (store.Checked, error)
}
