package aggregator

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/countmill/countmill/wire"
)

// seed is random for each process. Tables place counters by a hash with this seed, because anyone
// can construct names with one xxHash64 (HashCounter). names looks at the place of HashCounter
// first, but only for a bounded number of slots. The answers of a table do not depend on seed.
var seed = maphash.MakeSeed()

// place is a hash of a counter that nobody outside the process can predict.
func place(counter string) uint64 { return maphash.String(seed, counter) }

// near is the number of slots that are searched from the place of HashCounter.
const near = 16

// names maps counters to their number of shards and the age at which it was read. It compares
// whole names: if one counter were taken for another, it would be folded without a record. It
// holds no pointers, so that a million names cost the garbage collector nothing.
type names struct {
	// slots is in the order of HashCounter, as the adds of a commit are. So a commit walks slots
	// and text from beginning to end, instead of missing the CPU cache at each counter. Linear
	// probing from the high bits of HashCounter, over near slots; at most half of all slots are
	// taken.
	slots []nameSlot
	// crowded has the counters that find their near slots taken, as names with one HashCounter
	// do. Linear probing from the low bits of place; at most half of the slots are taken.
	crowded []nameSlot
	n       int    // names in both tables
	beyond  int    // names in crowded
	text    []byte // for each name its length in 2 bytes, then the name
}

type nameSlot struct {
	at     uint32 // offset in text, plus 1; 0 if the slot is free
	check  uint16 // the high bits of place
	shards uint16
	asked  age
}

const (
	minNameSlots = 1 << 10
	minCrowded   = 1 << 6
	maxNameText  = math.MaxUint32 - 1<<16
)

func newNames() *names {
	return &names{slots: make([]nameSlot, minNameSlots), crowded: make([]nameSlot, minCrowded)}
}

func check(place uint64) uint16 { return uint16(place >> 48) }

// find returns the counter's slot, or the free slot where the counter belongs. hash is the
// counter's HashCounter.
func (t *names) find(hash uint64, counter string) (s *nameSlot, crowded, found bool) {
	other := place(counter)
	last := uint64(len(t.slots) - 1)
	i := hash >> (64 - bits.Len64(last))
	for range near {
		s := &t.slots[i&last]
		if s.at == 0 {
			return s, false, false
		}
		if s.check == check(other) && t.is(s, counter) {
			return s, false, true
		}
		i++
	}
	last = uint64(len(t.crowded) - 1)
	for i := other; ; i++ {
		s := &t.crowded[i&last]
		if s.at == 0 {
			return s, true, false
		}
		if s.check == check(other) && t.is(s, counter) {
			return s, true, true
		}
	}
}

func (t *names) is(s *nameSlot, counter string) bool {
	at, n := int(s.at-1), len(counter)
	return int(binary.LittleEndian.Uint16(t.text[at:])) == n && string(t.text[at+2:at+2+n]) == counter
}

func (t *names) name(s *nameSlot) string {
	at := int(s.at - 1)
	n := int(binary.LittleEndian.Uint16(t.text[at:]))
	return string(t.text[at+2 : at+2+n])
}

// resize changes the number of slots of both tables.
func (t *names) resize(slots, crowded int) {
	old := [][]nameSlot{t.slots, t.crowded}
	t.slots, t.crowded, t.beyond = make([]nameSlot, slots), make([]nameSlot, crowded), 0
	for _, all := range old {
		for i := range all {
			if s := &all[i]; s.at != 0 {
				name := t.name(s)
				t.set(wire.HashCounter(name), name, *s)
			}
		}
	}
}

// get returns 0 for an absent counter.
func (t *names) get(hash uint64, counter string) (shards int, asked age) {
	if s, _, found := t.find(hash, counter); found {
		return int(s.shards), s.asked
	}
	return 0, 0
}

func (t *names) put(hash uint64, counter string, shards int, asked age) {
	if s, _, found := t.find(hash, counter); found {
		s.shards, s.asked = uint16(shards), asked
		return
	}
	if t.n++; 2*t.n > len(t.slots) {
		t.resize(2*len(t.slots), len(t.crowded))
	}
	at := uint32(len(t.text)) + 1
	t.text = binary.LittleEndian.AppendUint16(t.text, uint16(len(counter)))
	t.text = append(t.text, counter...)
	t.set(hash, counter, nameSlot{at: at, check: check(place(counter)), shards: uint16(shards), asked: asked})
}

// set fills the slot of an absent counter.
func (t *names) set(hash uint64, counter string, with nameSlot) {
	s, crowded, _ := t.find(hash, counter)
	*s = with
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
	t.n, t.beyond, t.text = 0, 0, t.text[:0]
}
