package wire

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Order is the first key by which entries are sorted before they are cut into parts; the name is
// the second. The counters of one group have neighbouring numbers, so a commit that adds to them
// writes to few places. A group is the name up to its second ':', or the whole name. The first 32
// bits of Order are from the hash of the group, the others from the hash of the counter.
func Order(counter string) uint64 {
	order, _ := Hashes(counter)
	return order
}

// Hashes returns Order and HashCounter.
func Hashes(counter string) (order, hash uint64) {
	hash = HashCounter(counter)
	group := groupLen(counter)
	if group == len(counter) {
		return hash, hash
	}
	const half = 32
	return HashCounter(counter[:group])>>half<<half | hash>>half, hash
}

// groupLen is the length of the counter's group.
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

// ShardHash is the first part of a shard's key in a store that spreads sorted keys over many
// machines. Neighbouring keys would overload one machine. Shard 0 has the hash of its counter;
// the others are spread from there by the golden ratio (Knuth, The Art of Computer Programming,
// volume 3, 6.4).
func ShardHash(counter string, shard int) uint64 {
	return SpreadHash(HashCounter(counter), shard)
}

// SpreadHash is ShardHash for a caller that already has HashCounter.
func SpreadHash(hash uint64, shard int) uint64 {
	return hash + uint64(shard)*0x9e3779b97f4a7c15
}

// SortEntries sorts entries as they are cut: by Order, then by name.
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

// placed is an entry with its Order, which sorting compares many times.
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

// place is where an increment is, and its Order.
type place struct {
	order uint64
	index int
}

// sortPlaces sorts by order, and keeps the succession of equal ones. It is a radix sort from the last byte
// on (Knuth, The Art of Computer Programming, volume 3, 5.2.5), because orders are hashes.
func sortPlaces(places []place) []place {
	if len(places) < 256 {
		slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.order, b.order) })
		return places
	}
	sorted := make([]place, len(places))
	for shift := 0; shift < 64; shift += 8 {
		var next [256]int
		for _, p := range places {
			next[uint8(p.order>>shift)]++
		}
		at := 0
		for i, n := range next {
			next[i], at = at, at+n
		}
		for _, p := range places {
			i := uint8(p.order >> shift)
			sorted[next[i]] = p
			next[i]++
		}
		places, sorted = sorted, places
	}
	return places
}
