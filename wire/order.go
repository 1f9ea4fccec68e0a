package wire

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Order is the order in which entries are cut into parts, before their names. Counters of one
// group, which is the name up to its second ':', have neighbouring numbers. So a commit that
// adds to the counters of a group adds to few groups. The first 32 bits are those of the group's
// hash, the others are those of the counter's. A name without a second ':' is a group of its own.
func Order(counter string) uint64 {
	order, _ := Hashes(counter)
	return order
}

// Hashes is Order and HashCounter.
func Hashes(counter string) (order, hash uint64) {
	hash = HashCounter(counter)
	group := groupLen(counter)
	if group == len(counter) {
		return hash, hash
	}
	const half = 32
	return HashCounter(counter[:group])>>half<<half | hash>>half, hash
}

// groupLen is how long the counter's group is.
func groupLen(counter string) int {
	first := strings.IndexByte(counter, ':')
	if first < 0 {
		return len(counter)
	}
	if second := strings.IndexByte(counter[first+1:], ':'); second >= 0 {
		return first + 1 + second
	}
	return len(counter)
}

// HashCounter is the hash of a counter's name: xxHash64, seed 0.
func HashCounter(counter string) uint64 { return xxhash.Sum64String(counter) }

// ShardHash is what a shard's key begins with in a store that keeps keys in order on many
// machines: neighbouring keys would heat one of them. Shard 0 has the hash of its counter; the
// others are spread from there by the golden ratio (Knuth, The Art of Computer Programming,
// volume 3, 6.4).
func ShardHash(counter string, shard int) uint64 {
	return SpreadHash(HashCounter(counter), shard)
}

// SpreadHash is ShardHash for a caller that has HashCounter already.
func SpreadHash(hash uint64, shard int) uint64 {
	return hash + uint64(shard)*0x9e3779b97f4a7c15
}

// SortEntries puts entries in the order in which they are cut: Order, then names.
func SortEntries(entries []Entry) {
	var space [MaxEntries]placed
	sorted := space[:0]
	if len(entries) > len(space) {
		sorted = make([]placed, 0, len(entries))
	}
	inOrder := true
	for i, e := range entries {
		sorted = append(sorted, placed{Order(e.Counter), e})
		inOrder = inOrder && (i == 0 || comparePlaced(sorted[i-1], sorted[i]) <= 0)
	}
	if inOrder {
		return
	}
	slices.SortFunc(sorted, comparePlaced)
	for i := range sorted {
		entries[i] = sorted[i].Entry
	}
}

// placed keeps an order that is needed for each of many comparisons.
type placed struct {
	order uint64
	Entry
}

func comparePlaced(a, b placed) int {
	if c := cmp.Compare(a.order, b.order); c != 0 {
		return c
	}
	return cmp.Compare(a.Counter, b.Counter)
}
