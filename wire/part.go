package wire

import (
	"encoding/hex"
	"fmt"
	"time"
)

const (
	// Version is the wire version that this package writes, and the newest it reads.
	Version = 1

	// MaxEntries is the most entries of a part. It is a constant of the wire format: 24
	// counters and a marker fit the smallest store, which takes 25 entities a commit.
	MaxEntries = 24

	// MaxBatch is the most bytes of an encoded batch.
	MaxBatch = 512 << 10

	// MaxSum bounds the delta of an entry on both sides. A sum that would leave it
	// starts a new entry in another part.
	MaxSum = 1 << 62
)

// MaxTime ends the times that a batch and a part may have; 1970 begins them. No clock that is
// right shows another, stores could not keep some of them, and ages in nanoseconds would wrap.
var MaxTime = time.Date(2262, time.January, 1, 0, 0, 0, 0, time.UTC)

// InRange reports whether a batch or a part may have that time.
func InRange(t time.Time) bool { return !t.Before(time.UnixMicro(0)) && t.Before(MaxTime) }

// A PartID names a part for ever.
type PartID [16]byte

// String is the id in lower-case hex.
func (id PartID) String() string { return hex.EncodeToString(id[:]) }

// Kind says where a part's id comes from and whether it follows a head.
type Kind uint8

// The kinds, with the numbers they have on the wire.
const (
	// Anonymous parts have random ids and hold what was coalesced.
	Anonymous Kind = iota
	// Identified parts hold one increment with an id.
	Identified
	// Head is part 0 of a request with a key.
	Head
	// Rest is a further part of a request with a key. It follows the head.
	Rest
	// IdentifiedRest is one increment with an id in a request with a key. It follows
	// the head, but its id is that of an Identified part.
	IdentifiedRest
)

// Follows reports whether a part of this kind may be applied only after the head
// before it in its batch.
func (k Kind) Follows() bool { return k == Rest || k == IdentifiedRest }

// Keyed reports whether a part of this kind carries the fingerprint of a request.
func (k Kind) Keyed() bool { return k >= Head }

// String is the kind's name.
func (k Kind) String() string {
	names := [...]string{"anonymous", "identified", "head", "rest", "identified rest"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// An Entry is the coalesced delta of one counter in a part.
type Entry struct {
	Counter string
	// Delta is from -MaxSum to MaxSum and never 0.
	Delta int64
}

// A Fingerprint tells two uses of one id apart: it covers counters and deltas, not
// times, because clients stamp those anew when they repeat.
type Fingerprint uint64

// A Part is what one marker stands for.
type Part struct {
	ID   PartID
	Kind Kind
	// Request is the fingerprint of the whole request for kinds that are Keyed, else 0.
	Request Fingerprint
	// Time is the event time of an identified increment or a keyed request; zero means
	// the batch's time.
	Time time.Time
	// Entries has at most MaxEntries, each counter at most once. Only a Head may have
	// none: its marker then stands for a request whose increments cancelled out, or all
	// had ids of their own.
	Entries []Entry
}

// Fingerprint is what the part's marker holds: for Head and Rest that of the request,
// else one over the part's own entries, so that an identified increment has the same
// one in a request with a key and out of it.
func (p *Part) Fingerprint() Fingerprint {
	if p.Kind == Head || p.Kind == Rest {
		return p.Request
	}
	return fingerprintEntries(p.Entries)
}

// A Batch is what one message carries.
type Batch struct {
	// Time is when the batch's oldest increment was added, in microseconds.
	Time  time.Time
	Parts []Part
}

// Entries counts the entries of all parts.
func (b *Batch) Entries() int {
	n := 0
	for i := range b.Parts {
		n += len(b.Parts[i].Entries)
	}
	return n
}
