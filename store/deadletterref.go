package store

import (
	"context"
	"time"

	"github.com/countmill/countmill/wire"
)

// The fingerprints of completion markers (wire.Receipt). An aggregator inserts one when all other parts of
// its message are settled: in the store, or durably in a dead letter.
const (
	CompletionCounted      wire.Fingerprint = 1 + iota // every part was applied
	CompletionDeadLettered                             // a part went to a dead letter: DeadLetterRefs say which
)

// MaxDeadLetterRefParts is the most parts that a DeadLetterRef names.
const MaxDeadLetterRefParts = 1000

// A DeadLetterRef notes that parts of a message went to a dead letter. It stays as long as the message's
// completion marker, also when the letter is gone. The markers of the parts say whether they were counted
// since, and the letter's Decision whether they were discarded.
type DeadLetterRef struct {
	// Completion is the id of the message's completion marker.
	Completion wire.PartID
	// Key is the key of the dead letter.
	Key string
	// Parts are the message's parts in the letter. It is empty if the message could not be read, or has
	// more than MaxDeadLetterRefParts in the letter: nobody can then know whether they were counted since.
	Parts []DeadLetterPart
	// At and ExpireAt are the times of the completion marker: see Marker.
	At, ExpireAt time.Time
}

// DeadLetterRefs shows which letters have parts of messages. Concurrent calls are allowed.
type DeadLetterRefs interface {
	// DeadLetterRefs returns the references of messages with these completion markers, in any order. Removing
	// a letter does not remove them: the store removes them as it removes markers. At and ExpireAt are as in the answers of Applied.
	DeadLetterRefs(ctx context.Context, completions []wire.PartID) ([]DeadLetterRef, error)
}

// A DeadLetterPart is a part in a dead letter. Stores keep its fields in 24 bytes.
type DeadLetterPart struct {
	ID          wire.PartID
	Fingerprint wire.Fingerprint
}

// Markers are the ids of the markers of which any shows that the part was counted.
func (p *DeadLetterPart) Markers() []wire.PartID {
	return []wire.PartID{p.ID, wire.RenewedOf(p.ID, p.Fingerprint)}
}

// Counted reports whether the part was counted, by the markers that were found.
func (p *DeadLetterPart) Counted(found map[wire.PartID]Marker) bool {
	if m, ok := found[p.ID]; ok && m.Fingerprint == p.Fingerprint {
		return true
	}
	_, ok := found[wire.RenewedOf(p.ID, p.Fingerprint)]
	return ok
}
