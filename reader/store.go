package reader

import (
	"context"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A Store is the part of a store that a Reader needs. Concurrent calls are allowed.
type Store interface {
	store.Reads

	// Workers is the method of store.Heartbeat.
	Workers(ctx context.Context) ([]store.Worker, error)

	// Check is the method of store.Meta.
	Check(ctx context.Context) (store.Checked, error)

	// Applied is the method of store.Folder. Only TotalsAfter calls it, and DeadLetterRefs.
	Applied(ctx context.Context, ids []wire.PartID) ([]store.Marker, error)
	store.DeadLetterRefs

	// store.Boards is for Top and Rank alone.
	store.Boards
}
