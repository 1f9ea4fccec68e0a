package aggregator

import (
	"hash/maphash"
	"math/bits"
)

// seed is random for each process. Tables place counters by a hash with this seed, because anyone
// can construct names with one xxHash64 (HashCounter). names looks at the place of HashCounter
// first, but only for a bounded number of slots.
var seed = maphash.MakeSeed()

// place is a hash of a counter that nobody outside the process can predict.
func place(counter string) uint64 { return maphash.String(seed, counter) }

// near is the number of slots that are searched from the place of HashCounter.
const near = 16

// names maps counters to their number of shards and the age at which it was read. It knows a name by HashCounter and place, 128
// bits: if one counter were taken for another, it would be folded without a record. Whoever makes a million names with one
// HashCounter has two with one place with a probability of 3e-8. A comparison of names would miss the CPU cache for each.
// It holds no pointers, so that a million names cost the garbage collector nothing.
type names struct {
	// slots is in the order of HashCounter, as the adds of a commit are. So a commit walks it from beginning to end.
	// Linear probing from the high bits of HashCounter, over near slots; at most half of all slots are taken.
	slots []nameSlot
	// crowded has the counters that find their near slots taken, as names with one HashCounter
	// do. Linear probing from the low bits of place; at most half of the slots are taken.
	crowded []nameSlot
	n       int // names in both tables
	beyond  int // names in crowded
}

type nameSlot struct {
	hash, place uint64
	asked       age
	shards      uint16 // 0 if the slot is free
}

const (
	minNameSlots = 1 << 10
	minCrowded   = 1 << 6
)

func newNames() *names {
	return &names{slots: make([]nameSlot, minNameSlots), crowded: make([]nameSlot, minCrowded)}
}

// find returns the slot of the counter with these hashes, or the free slot where the counter belongs.
func (t *names) find(hash, place uint64) (s *nameSlot, crowded, found bool) {
	last := uint64(len(t.slots) - 1)
	i := hash >> (64 - bits.Len64(last))
	for range near {
		s := &t.slots[i&last]
		if s.shards == 0 {
			return s, false, false
		}
		if s.hash == hash && s.place == place {
			return s, false, true
		}
		i++
	}
	last = uint64(len(t.crowded) - 1)
	for i := place; ; i++ {
		s := &t.crowded[i&last]
		if s.shards == 0 {
			return s, true, false
		}
		if s.hash == hash && s.place == place {
			return s, true, true
		}
	}
}

// resize changes the number of slots of both tables.
func (t *names) resize(slots, crowded int) {
	old := [][]nameSlot{t.slots, t.crowded}
	t.slots, t.crowded, t.beyond = make([]nameSlot, slots), make([]nameSlot, crowded), 0
	for _, all := range old {
		for i := range all {
			if all[i].shards != 0 {
				t.set(&all[i])
			}
		}
	}
}

// get returns 0 for an absent counter.
func (t *names) get(hash uint64, counter string) (shards int, asked age) {
	if s, _, found := t.find(hash, place(counter)); found {
		return int(s.shards), s.asked
	}
	return 0, 0
}

// put notes a counter with at least one shard.
func (t *names) put(hash uint64, counter string, shards int, asked age) {
	with := nameSlot{hash: hash, place: place(counter), asked: asked, shards: uint16(shards)}
	if s, _, found := t.find(hash, with.place); found {
		*s = with
		return
	}
	if t.n++; 2*t.n > len(t.slots) {
		t.resize(2*len(t.slots), len(t.crowded))
	}
	t.set(&with)
}

// set fills the slot of an absent counter.
func (t *names) set(with *nameSlot) {
	s, crowded, _ := t.find(with.hash, with.place)
	*s = *with
	if !crowded {
		return
	}
	if t.beyond++; 2*t.beyond > len(t.crowded) {
		t.resize(len(t.slots), 2*len(t.crowded))
	}
}

// clear removes all names and keeps the memory.
func (t *names) clear() {
	clear(t.slots)
	clear(t.crowded)
	t.n, t.beyond = 0, 0
}
