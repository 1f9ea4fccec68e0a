package wire

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"strconv"
)

// A Class is the source of an id: random bits, or the names that were hashed. It is the first
// four bits of the id. So an id of one class is never an id of another, and a part of one kind
// cannot take the id of another kind.
type Class uint8

// The classes, with the numbers that they have in ids.
const (
	_               Class = iota
	AnonymousClass        // random
	IdentifiedClass       // the counter and the id of an increment
	KeyClass              // the principal and the Idempotency-Key of a request
	MessageClass          // the topic and the broker's id of a message in JSON
	RenewedClass          // another part, whose own id can no longer be counted
	CompletionClass       // a message: its completion marker (Receipt)
	ResetClass            // the counter and the id of a reset
	DeadLetterClass       // the key of a dead letter
	SequenceClass         // a sequence and the id of a request for its values
	RecountClass          // a corrected sum, and the correction of it before
)

// Class returns the id's class. It is 0 or above RecountClass if countmill did not make the id.
func (id PartID) Class() Class { return Class(id[0] >> 4) }

func (id PartID) in(c Class) PartID {
	id[0] = id[0]&0x0f | byte(c)<<4
	return id
}

// RandomID returns a random id of a class. Outside simulations random is
// crypto/rand.Reader, which never fails. It must not be a seeded generator: a restored machine
// image would repeat its ids.
func RandomID(random io.Reader, class Class) (id PartID) {
	if _, err := io.ReadFull(random, id[:]); err != nil {
		panic(err)
	}
	return id.in(class)
}

// IncrementID is the id of the part of one increment with an id. It depends on the counter, so
// one event id may count on two counters.
func IncrementID(counter, id string) PartID { return hashID(IdentifiedClass, counter, id) }

// KeyID is the id of part number of a request with an Idempotency-Key. principal is the caller;
// empty if callers are not authenticated.
func KeyID(principal, key string, number int) PartID {
	return hashID(KeyClass, principal, key).numbered(number)
}

// MessageID is the id of part number of a message that another program put on the topic.
func MessageID(topic, brokerID string, number int) PartID {
	return hashID(MessageClass, topic, brokerID).numbered(number)
}

// Parts that were cut together differ in the last bytes of their ids only: their numbers. So a store keeps
// their markers side by side, and writes and finds them with less work.
const numberLen = 4

// numbered returns the id of part number, below 2^32.
func (id PartID) numbered(number int) PartID {
	binary.BigEndian.PutUint32(id[len(id)-numberLen:], uint32(number))
	return id
}

// RenewedOf is the new id of the part with this id and fingerprint, whose own id can no longer be counted. It is the same each
// time for the same part, and differs if one id was used with different deltas.
func RenewedOf(id PartID, f Fingerprint) PartID {
	return hashID(RenewedClass, string(id[:]), strconv.FormatUint(uint64(f), 16))
}

// DeadLetterID is the id of the decision about the dead letter with this key.
func DeadLetterID(key string) PartID { return hashID(DeadLetterClass, key) }

// SentID replaces the random id of a part that came from the sender of that name, whose batches
// must not take ids of others. No two senders share an id, and the same part always gets the same
// one. The part keeps its number.
func SentID(sender string, id PartID) PartID {
	random, number := id[:len(id)-numberLen], id[len(id)-numberLen:]
	sent := hashID(id.Class(), "http", sender, string(random))
	copy(sent[len(random):], number)
	return sent
}

// SentFlush replaces the flush of a batch that came from the sender of that name, whose messages must
// not have completion markers of others. No two senders share a flush, and the same batch always gets the same one.
func SentFlush(sender string, flush FlushID) FlushID {
	return FlushID(hashID(0, "http flush", sender, string(flush[:])))
}

// ResetID is the id of a reset of a counter.
func ResetID(counter, id string) PartID { return hashID(ResetClass, counter, id) }

// SequenceID is the id of a request for values of a sequence. Other sequences have other ids.
func SequenceID(sequence, id string) PartID { return hashID(SequenceClass, sequence, id) }

// RecountID is the id of the correction of a sum: the total of a counter or a group, or with a minute
// other than 0 a quarter hour of its series. before is the place of the last correction of that sum; empty if
// there is none.
func RecountID(counter string, quarter Minute, before string) PartID {
	return hashID(RecountClass, counter, strconv.FormatInt(int64(quarter), 10), before)
}

// hashID is the first 16 bytes of SHA-256 over length-prefixed fields, with the class in the
// first bits.
func hashID(class Class, fields ...string) PartID {
	d := newDigest()
	for _, f := range fields {
		d.field(f)
	}
	sum := d.sum()
	return PartID(sum[:16]).in(class)
}

// A FlushID names a flush: everything that a publisher took out of its open batch at one moment.
// It is random. The zero FlushID means none.
type FlushID [16]byte

// NewFlushID returns a random FlushID. See RandomID about random.
func NewFlushID(random io.Reader) (s FlushID) {
	if _, err := io.ReadFull(random, s[:]); err != nil {
		panic(err)
	}
	return s
}

// MessageUUID is the name of message number of the flush.
func (s FlushID) MessageUUID(number int) string {
	id := hashID(0, "message", string(s[:]), strconv.Itoa(number))
	return hex.EncodeToString(id[:])
}
