package aggregator

import (
	"context"
	"time"

	"github.com/countmill/countmill/store"
)

// A Store is the part of a store that an aggregator needs.
type Store interface {
	store.Folder
	store.Records
	store.DeadLetters
	store.Meta

	// JournalMoment is the method of store.Journal.
	JournalMoment(now time.Time) (at time.Time, done func())

	// Beat is the method of store.Heartbeat.
	Beat(ctx context.Context, w store.Worker) error
}
