package wire

import (
	"encoding/hex"
	"fmt"
	"time"
)

const (
	// Version is the wire version that this package writes and reads.
	Version = 2

	// MaxEntries is the most entries of a part. It is a constant of the wire format, and part of
	// the fingerprints of keyed requests: a request that is cut at two sizes would partly count
	// twice. Larger parts save markers but write more shards, if publishers share few counters.
	// By Zipf's law, 48 entries write a seventh more entities than 24, and 100 entries twice as
	// many.
	MaxEntries = 24

	// MaxBatch is the most bytes of an encoded batch.
	MaxBatch = 512 << 10

	// MaxSum bounds the absolute value of the delta of an entry. A sum beyond it begins a new
	// entry in another part.
	MaxSum = 1 << 62

	// MaxIncrements is the most increments that a part can say its entries are the sums of.
	MaxIncrements = 1 << 40
)

// MaxTime is after all times of a batch or a part; the first one is 1970. A clock with another
// time is wrong, stores could not keep some of them, and ages in nanoseconds would wrap.
var MaxTime = time.Date(2262, time.January, 1, 0, 0, 0, 0, time.UTC)

// InRange reports whether a batch or a part may have the time t.
func InRange(t time.Time) bool { return !t.Before(time.UnixMicro(0)) && t.Before(MaxTime) }

// A PartID identifies a part for ever.
type PartID [16]byte

// String returns the id in lower-case hex.
func (id PartID) String() string { return hex.EncodeToString(id[:]) }

// A Kind is the source of a part's id. It also decides whether the part follows a head.
type Kind uint8

// The kinds, with their numbers on the wire. The ids of one kind are all of one class.
const (
	// Anonymous parts have random ids and hold coalesced increments.
	Anonymous Kind = iota
	// Identified parts hold one increment with an id.
	Identified
	// Head is part 0 of a request with a key.
	Head
	// Follower is a further part of a request with a key. It follows the head.
	Follower
	// IdentifiedFollower is one increment with an id in a request with a key. It follows
	// the head, but its id is that of an Identified part.
	IdentifiedFollower
	// Foreign parts come from a message in JSON. Their ids are computed from the broker's message
	// id.
	Foreign
	// Renewed parts are counted under a new id instead of their own.
	Renewed
)

// Class is the class of the ids of parts of this kind.
func (k Kind) Class() Class {
	switch k {
	case Anonymous:
		return AnonymousClass
	case Identified, IdentifiedFollower:
		return IdentifiedClass
	case Head, Follower:
		return KeyClass
	case Foreign:
		return MessageClass
	}
	return RenewedClass
}

// carriesID reports whether a part of this kind has its id on the wire. The other ids are
// computed from the names on the wire, so that no sender can use an id that does not belong to
// its names.
func (k Kind) carriesID() bool {
	c := k.Class()
	return c != IdentifiedClass && c != KeyClass
}

// Local reports whether only dead letters have parts of this kind. A bus may not deliver them,
// because their ids cannot be checked.
func (k Kind) Local() bool { return k == Foreign || k == Renewed }

// Follows reports whether a part of this kind may be applied only after the head
// before it in its batch.
func (k Kind) Follows() bool { return k == Follower || k == IdentifiedFollower }

// Keyed reports whether a part of this kind carries the fingerprint of a request.
func (k Kind) Keyed() bool { return k == Head || k.Follows() }

// String returns the kind's name.
func (k Kind) String() string {
	names := [...]string{"anonymous", "identified", "head", "follower", "identified follower", "foreign", "renewed"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// An Entry is the coalesced delta of one counter in a part.
type Entry struct {
	Counter string
	// Delta is from -MaxSum to MaxSum, but not 0.
	Delta int64
}

// A Fingerprint distinguishes two uses of one id. It is a hash of counters and deltas, but not of
// times, because clients set new times when they repeat.
type Fingerprint uint64

// A Key identifies a request with an Idempotency-Key.
type Key struct {
	// Principal is the caller; empty if callers are not authenticated.
	Principal string
	Key       string
}

// A Minute is a number of minutes since 1970 UTC; 0 for none.
type Minute int32

// MinuteOf returns the minute of a time that is InRange. The first minute of 1970 is 0, which
// means none.
func MinuteOf(t time.Time) Minute { return Minute(t.Unix() / 60) }

// Time returns the beginning of the minute.
func (m Minute) Time() time.Time { return time.Unix(int64(m)*60, 0).UTC() }

// A Part is the smallest unit that is applied: whole or not at all, and once, with one marker.
type Part struct {
	// ID identifies the part. For the classes IdentifiedClass and KeyClass it is computed from
	// the fields below.
	ID   PartID
	Kind Kind
	// Number is the place of a Follower in its request, from 1. For a Head it is the number of followers
	// in all messages together. Other kinds have 0.
	Number int32
	// Minute is the event time at which the entries count in a curve over time. It has no effect
	// on ids, fingerprints and the deduplication window. If it is 0, Batch.Minute decides.
	Minute Minute
	// Event is the increment's id, for Identified and IdentifiedFollower.
	Event string
	// Key is the key of a Head. Other kinds have none.
	Key *Key
	// Request is the fingerprint of the whole request for Keyed kinds, else 0.
	Request Fingerprint
	// Time is compared with the deduplication window. It is the event time of an identified
	// increment or a keyed request. Zero means the batch's time.
	Time time.Time
	// Sender is the name of the token with which the increments came, for the journal; empty if it is
	// not known. It has no effect on ids and fingerprints.
	Sender string
	// Entries has at most MaxEntries entries, each counter at most once. Only a Head may have
	// none: the increments of its request summed to 0, or all had ids of their own.
	Entries []Entry
	// Increments is how many increments the entries are the sums of, up to MaxIncrements; 0 for
	// one an entry. It serves statistics, and has no effect on ids and fingerprints. A publisher
	// knows the number for a whole flush, and says it in one part of the flush.
	Increments int64
}

// CountIncrements returns how many increments the entries are the sums of.
func (p *Part) CountIncrements() int64 { return max(p.Increments, int64(len(p.Entries))) }

// Fingerprint returns the fingerprint for the part's marker. For Head and Follower it is the
// fingerprint of the request, else that of the part's entries. So an increment with an id has the
// same fingerprint inside and outside a request with a key.
func (p *Part) Fingerprint() Fingerprint {
	if p.Kind == Head || p.Kind == Follower {
		return p.Request
	}
	return fingerprintEntries(p.Entries)
}

// A Batch is the content of one message.
type Batch struct {
	// Time is when the batch's oldest increment was added, in microseconds.
	Time time.Time
	// Flush and Number identify the message: it is message Number of the flush, from 0. Dead
	// letters have no Flush.
	Flush  FlushID
	Number int
	Parts  []Part
}

// Minute returns the event time at which the entries of a part of the batch count: the part's
// Minute, or else the minute of its Time, or else that of the batch.
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
