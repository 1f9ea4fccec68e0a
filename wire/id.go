package wire

import (
	"cmp"
	"io"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// RandomIDs fills ids from random, which is crypto/rand.Reader outside simulations and
// never fails. It is not a generator seeded once: a restored machine image would repeat
// that.
func RandomIDs(random io.Reader, ids []PartID) {
	buf := make([]byte, 16*len(ids))
	if _, err := io.ReadFull(random, buf); err != nil {
		panic(err)
	}
	for i := range ids {
		copy(ids[i][:], buf[16*i:])
	}
}

// IncrementID is the id of the part of one increment with an id. The counter is part
// of it, so one event id may count on two counters.
func IncrementID(counter, id string) PartID { return hashID("id", counter, id) }

// KeyID is the id of part number of a request with an Idempotency-Key. principal is
// who sent it, empty where callers are not told apart.
func KeyID(principal, key string, number int) PartID {
	return hashID("key", principal, key, strconv.Itoa(number))
}

// MessageID is the id of part number of a message that somebody else put on the topic.
func MessageID(topic, brokerID string, number int) PartID {
	return hashID("msg", topic, brokerID, strconv.Itoa(number))
}

// RenewedID is the id under which a part counts that can no longer count under its own: the
// same each time for the same part, another where one id was used for different deltas.
func RenewedID(p *Part) PartID {
	return hashID("renewed", string(p.ID[:]), strconv.FormatUint(uint64(p.Fingerprint()), 16))
}

// LetterID is the id of the decision about a dead letter, by its key.
func LetterID(key string) PartID { return hashID("letter", key) }

// ResetID is the id of a reset of a counter.
func ResetID(counter, id string) PartID { return hashID("reset", counter, id) }

// hashID is the first 16 bytes of SHA-256 over length-prefixed fields.
func hashID(fields ...string) PartID {
	d := newDigest()
	for _, f := range fields {
		d.field(f)
	}
	sum := d.sum()
	return PartID(sum[:16])
}

// fingerprintEntries does not depend on the order of the entries.
func fingerprintEntries(entries []Entry) Fingerprint {
	var space [MaxEntries]Entry
	sorted := append(space[:0], entries...)
	SortEntries(sorted)
	d := newDigest()
	for _, e := range sorted {
		d.entry(e.Counter, e.Delta)
	}
	return d.fingerprint()
}

// HashCounter is the hash that orders counters everywhere: xxHash64, seed 0. Parts of
// different publishers are cut in its order so that they overlap, and shard 0 of every
// counter lies in its order in the store.
func HashCounter(counter string) uint64 { return xxhash.Sum64String(counter) }

// ShardHash is what a shard's key begins with: neighbouring keys would heat one
// tablet. Shard 0 has the hash of its counter; the others are spread from there by the
// golden ratio (Knuth, The Art of Computer Programming, volume 3, 6.4).
func ShardHash(counter string, shard int) uint64 {
	return SpreadHash(HashCounter(counter), shard)
}

// SpreadHash is ShardHash for a caller that has HashCounter already.
func SpreadHash(hash uint64, shard int) uint64 {
	return hash + uint64(shard)*0x9e3779b97f4a7c15
}

// SortEntries puts entries in the order of their counters' hashes, then names.
func SortEntries(entries []Entry) {
	var space [MaxEntries]hashed
	sorted := space[:0]
	if len(entries) > len(space) {
		sorted = make([]hashed, 0, len(entries))
	}
	inOrder := true
	for i, e := range entries {
		sorted = append(sorted, hashed{HashCounter(e.Counter), e})
		inOrder = inOrder && (i == 0 || compareHashed(sorted[i-1], sorted[i]) <= 0)
	}
	if inOrder {
		return
	}
	slices.SortFunc(sorted, compareHashed)
	for i := range sorted {
		entries[i] = sorted[i].Entry
	}
}

// hashed keeps a hash that is needed for each of many comparisons.
type hashed struct {
	hash uint64
	Entry
}

func compareHashed(a, b hashed) int {
	if c := cmp.Compare(a.hash, b.hash); c != 0 {
		return c
	}
	return cmp.Compare(a.Counter, b.Counter)
}
