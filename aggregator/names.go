package aggregator

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/countmill/countmill/wire"
)

// seed is drawn anew by each process. Tables place counters by a hash under it: names can
// be made to have one xxHash64, all of them (HashCounter decides the order of entries, which
// must be the same everywhere, and where names looks first, for a bounded while). What tables answer does
// not depend on it.
var seed = maphash.MakeSeed()

// place is where tables look for a counter that others may have been made to crowd out.
func place(counter string) uint64 { return maphash.String(seed, counter) }

// near is how many slots are looked at from where a counter belongs.
const near = 16

// names keeps the number of shards of counters, and when it was asked for. It is exact: a counter that was taken
// for another would be folded without a record. It holds no pointers, so that a million
// names are nothing to the garbage collector.
type names struct {
	// Counters stand in the order of their hashes, so that commits, which are in that order, walk
	// the table and the text from the beginning to the end instead of waiting for memory at each
	// counter. Linear probing from the high bits of HashCounter, for near slots; at most half of
	// them are taken.
	slots []nameSlot
	// What finds its slots taken, as names that were made to have one hash do: linear probing from the low
	// bits of place, at most half of the slots taken.
	crowded []nameSlot
	n       int    // in both
	beyond  int    // in crowded
	text    []byte // 2 bytes of length and the name, one after another
}

type nameSlot struct {
	at     uint32 // where in text, plus 1; 0: free
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

// find returns the slot of the counter with that HashCounter, or the free one where it belongs. No counter is "".
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

// resize gives it so many slots of each kind.
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

// get returns 0 for a counter that is not there.
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

// set fills the slot of a counter that is not there.
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

// clear empties it and keeps its memory.
func (t *names) clear() {
	clear(t.slots)
	clear(t.crowded)
	t.n, t.beyond, t.text = 0, 0, t.text[:0]
}
