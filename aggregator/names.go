package aggregator

import (
	"encoding/binary"
	"hash/maphash"
	"math"
)

// seed is drawn anew by each process. Tables place counters by a hash under it: names can
// be made to have one xxHash64, all of them (HashCounter decides the order of entries, which
// must be the same everywhere, and nothing else). What tables answer does not depend on it.
var seed = maphash.MakeSeed()

// place is where tables look for a counter.
func place(counter string) uint64 { return maphash.String(seed, counter) }

// names keeps the number of shards of counters, and when it was asked for. It is exact: a counter that was taken
// for another would be folded without a record. It holds no pointers, so that a million
// names are nothing to the garbage collector.
type names struct {
	// Open addressing with linear probing from the low bits of place, at most half of the
	// slots taken.
	slots []nameSlot
	n     int
	text  []byte // 2 bytes of length and the name, one after another
}

type nameSlot struct {
	at     uint32 // where in text, plus 1; 0: free
	check  uint16 // the high bits of place
	shards uint16
	asked  age
}

func check(hash uint64) uint16 { return uint16(hash >> 48) }

const (
	minNameSlots = 1 << 10
	maxNameText  = math.MaxUint32 - 1<<16
)

func newNames() *names {
	return &names{slots: make([]nameSlot, minNameSlots)}
}

func (t *names) resize(size int) {
	old := t.slots
	t.slots = make([]nameSlot, size)
	for _, s := range old {
		if s.at != 0 {
			i, _ := t.find(place(t.name(s)), "")
			t.slots[i] = s
		}
	}
}

// find returns the counter's slot, or the free one where it belongs. No counter is "".
func (t *names) find(hash uint64, counter string) (at int, found bool) {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.at == 0 {
			return int(i), false
		}
		if s.check == check(hash) && t.is(*s, counter) {
			return int(i), true
		}
	}
}

func (t *names) is(s nameSlot, counter string) bool {
	at, n := int(s.at-1), len(counter)
	return int(binary.LittleEndian.Uint16(t.text[at:])) == n && string(t.text[at+2:at+2+n]) == counter
}

func (t *names) name(s nameSlot) string {
	at := int(s.at - 1)
	n := int(binary.LittleEndian.Uint16(t.text[at:]))
	return string(t.text[at+2 : at+2+n])
}

// get returns 0 for a counter that is not there.
func (t *names) get(counter string) (shards int, asked age) {
	if i, found := t.find(place(counter), counter); found {
		return int(t.slots[i].shards), t.slots[i].asked
	}
	return 0, 0
}

func (t *names) put(counter string, shards int, asked age) {
	hash := place(counter)
	i, found := t.find(hash, counter)
	if found {
		t.slots[i].shards, t.slots[i].asked = uint16(shards), asked
		return
	}
	if t.n++; 2*t.n > len(t.slots) {
		t.resize(2 * len(t.slots))
		i, _ = t.find(hash, counter)
	}
	t.slots[i] = nameSlot{at: uint32(len(t.text)) + 1, check: check(hash), shards: uint16(shards), asked: asked}
	t.text = binary.LittleEndian.AppendUint16(t.text, uint16(len(counter)))
	t.text = append(t.text, counter...)
}

// clear empties it and keeps its memory.
func (t *names) clear() {
	clear(t.slots)
	t.n, t.text = 0, t.text[:0]
}
