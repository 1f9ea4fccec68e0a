package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/countmill/countmill/wire"
)

// The fingerprints of tails' markers (wire.Receipt). An aggregator inserts a tail when all other parts
// of its message are settled: in the store, or durably in a dead letter.
const (
	TailCounted wire.Fingerprint = 1 + iota // every part was applied
	TailAside                               // a part went to a dead letter: Asides say which
)

// MaxAsideParts is the most parts that an Aside names.
const MaxAsideParts = 1000

// An Aside notes that parts of a message went to a dead letter. It stays as long as the message's
// tail, also when the letter is gone: the markers of the parts say whether they were counted since,
// and the letter's Fate whether they were discarded.
type Aside struct {
	// Tail is the id of the message's tail.
	Tail wire.PartID
	// Letter is the key of the dead letter.
	Letter string
	// Parts are the message's parts in the letter. It is empty if the message could not be read, or has
	// more than MaxAsideParts in the letter: nobody can then tell whether they were counted since.
	Parts []AsidePart
	// At and ExpireAt are the times of the tail's marker: see Marker.
	At, ExpireAt time.Time
}

// Asides shows which letters have parts of messages. Concurrent calls are allowed.
type Asides interface {
	// Asides returns the notes under these tails, in any order. Removing a letter does not remove them:
	// the store removes them as it removes markers. At and ExpireAt are as in the answers of Applied.
	Asides(ctx context.Context, tails []wire.PartID) ([]Aside, error)
}

// An AsidePart is a part in a dead letter.
type AsidePart struct {
	ID          wire.PartID
	Fingerprint wire.Fingerprint
}

// Markers are the ids of the markers of which any shows that the part was counted.
func (p *AsidePart) Markers() []wire.PartID {
	return []wire.PartID{p.ID, wire.RenewedOf(p.ID, p.Fingerprint)}
}

// Counted reports whether the part was counted, by the markers that were found.
func (p *AsidePart) Counted(found map[wire.PartID]Marker) bool {
	if m, ok := found[p.ID]; ok && m.Fingerprint == p.Fingerprint {
		return true
	}
	_, ok := found[wire.RenewedOf(p.ID, p.Fingerprint)]
	return ok
}

const asidePartLen = 16 + 8

// AppendAsideParts appends parts to dst as bytes, for stores.
func AppendAsideParts(dst []byte, parts []AsidePart) []byte {
	for i := range parts {
		p := &parts[i]
		dst = binary.BigEndian.AppendUint64(append(dst, p.ID[:]...), uint64(p.Fingerprint))
	}
	return dst
}

// ParseAsideParts reads what AppendAsideParts has written.
func ParseAsideParts(b []byte) ([]AsidePart, error) {
	if len(b)%asidePartLen != 0 {
		return nil, fmt.Errorf("the parts of an aside have %d bytes, which is not a multiple of %d", len(b), asidePartLen)
	}
	var parts []AsidePart
	for ; len(b) > 0; b = b[asidePartLen:] {
		parts = append(parts, AsidePart{ID: wire.PartID(b[:16]), Fingerprint: wire.Fingerprint(binary.BigEndian.Uint64(b[16:]))})
	}
	return parts, nil
}
