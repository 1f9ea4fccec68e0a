package aggregator

import (
	"context"

	"github.com/countmill/countmill/store"
)

// A Store is the part of a store that an aggregator needs.
type Store interface {
	store.Folder
	store.Records
	store.DeadLetters
	store.Meta

	// Beat is the method of store.Heartbeat.
	Beat(ctx context.Context, w store.Worker) error
}
