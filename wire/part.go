package wire

import (
	"encoding/hex"
	"fmt"
	"time"
)

const (
	// Version is the wire version that this package writes and reads.
	Version = 2

	// MaxEntries is the most entries of a part. It is a constant of the wire format, and goes
	// into the fingerprints of keyed requests: one request that is cut at two sizes would be
	// counted twice in part. More entries save markers, and cost shards where publishers share
	// few counters: 48 cost a seventh more entities than 24 for Zipf's law, 100 twice as many.
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

// The kinds, with the numbers they have on the wire. Each has ids of one class.
const (
	// Anonymous parts have random ids and hold coalesced increments.
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
	// Foreign parts are of a message in JSON, and have the broker's id of it.
	Foreign
	// Renewed parts are counted under another id than their first one.
	Renewed
)

// Class is the class of the ids of parts of this kind.
func (k Kind) Class() Class {
	switch k {
	case Anonymous:
		return AnonymousClass
	case Identified, IdentifiedRest:
		return IdentifiedClass
	case Head, Rest:
		return KeyClass
	case Foreign:
		return MessageClass
	}
	return RenewedClass
}

// carriesID reports whether a part of this kind has its id on the wire. The ids of others are
// computed from the names that stand there, so that nobody can send one that does not fit.
func (k Kind) carriesID() bool {
	c := k.Class()
	return c != IdentifiedClass && c != KeyClass
}

// Local reports whether only dead letters have parts of this kind. From a bus they are refused: a
// sender cannot show where their ids come from.
func (k Kind) Local() bool { return k == Foreign || k == Renewed }

// Follows reports whether a part of this kind may be applied only after the head
// before it in its batch.
func (k Kind) Follows() bool { return k == Rest || k == IdentifiedRest }

// Keyed reports whether a part of this kind carries the fingerprint of a request.
func (k Kind) Keyed() bool { return k == Head || k.Follows() }

// String is the kind's name.
func (k Kind) String() string {
	names := [...]string{"anonymous", "identified", "head", "rest", "identified rest", "foreign", "renewed"}
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

// A Key is the name of a request with an Idempotency-Key.
type Key struct {
	// Principal is the caller, empty where callers have no names.
	Principal string
	Key       string
}

// A Minute is a minute of time, in minutes since 1970 UTC. 0 is none.
type Minute int32

// MinuteOf is the minute of a time that is InRange; that of 1970 is none.
func MinuteOf(t time.Time) Minute { return Minute(t.Unix() / 60) }

// Time is when the minute begins.
func (m Minute) Time() time.Time { return time.Unix(int64(m)*60, 0).UTC() }

// A Part is the smallest unit that is applied: whole or not at all, once, with one marker.
type Part struct {
	// ID is computed from the fields below for kinds of the classes IdentifiedClass and KeyClass.
	ID   PartID
	Kind Kind
	// Number is the place of a Rest in its request, from 1. Of a Head it is how many of those there
	// are in all messages together. Others have 0.
	Number int32
	// Minute is the event time that the entries count at, where a curve is kept. It has nothing
	// to do with ids, fingerprints and the deduplication window. 0: see Batch.Minute.
	Minute Minute
	// Event is the id that the increment of an Identified or IdentifiedRest came with.
	Event string
	// Key is that of a Head. Others have none.
	Key *Key
	// Request is the fingerprint of the whole request for kinds that are Keyed, else 0.
	Request Fingerprint
	// Time is what the deduplication window is judged by: the event time of an identified
	// increment or a keyed request. Zero means the batch's time.
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

// A Batch is the content of one message.
type Batch struct {
	// Time is when the batch's oldest increment was added, in microseconds.
	Time time.Time
	// Seal and Number name the message: it is message Number of the seal, from 0. Dead letters
	// have no Seal.
	Seal   SealID
	Number int
	Parts  []Part
}

// Minute is the event time that the entries of a part of the batch count at: its own Minute,
// else that of its Time, else that of the batch.
func (b *Batch) Minute(p *Part) Minute {
	switch {
	case p.Minute != 0:
		return p.Minute
	case !p.Time.IsZero():
		return MinuteOf(p.Time)
	}
	return MinuteOf(b.Time)
}

// Entries counts the entries of all parts.
func (b *Batch) Entries() int {
	n := 0
	for i := range b.Parts {
		n += len(b.Parts[i].Entries)
	}
	return n
}
