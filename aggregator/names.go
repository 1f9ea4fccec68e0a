package aggregator

import (
	"encoding/binary"
	"math"

	"github.com/countmill/countmill/wire"
)

// names keeps the number of shards of counters. It is exact: a counter that was taken
// for another would be folded without a record. It holds no pointers, so that a million
// names are nothing to the garbage collector.
type names struct {
	// Open addressing with linear probing from the hash's low bits, at most half of the
	// slots taken. Not the high bits: what comes first may be a window's, which begins
	// with the lowest hashes.
	slots []nameSlot
	n     int
	text  []byte // 2 bytes of length and the name, one after another
}

type nameSlot struct {
	at     uint32 // where in text, plus 1; 0: free
	check  uint16 // the hash's high bits
	shards uint16
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
			i, _ := t.find(wire.HashCounter(t.name(s)), "")
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
func (t *names) get(hash uint64, counter string) (shards int) {
	if i, found := t.find(hash, counter); found {
		return int(t.slots[i].shards)
	}
	return 0
}

func (t *names) put(hash uint64, counter string, shards int) {
	i, found := t.find(hash, counter)
	if found {
		t.slots[i].shards = uint16(shards)
		return
	}
	if t.n++; 2*t.n > len(t.slots) {
		t.resize(2 * len(t.slots))
		i, _ = t.find(hash, counter)
	}
	t.slots[i] = nameSlot{at: uint32(len(t.text)) + 1, check: check(hash), shards: uint16(shards)}
	t.text = binary.LittleEndian.AppendUint16(t.text, uint16(len(counter)))
	t.text = append(t.text, counter...)
}

// clear empties it and keeps its memory.
func (t *names) clear() {
	clear(t.slots)
	t.n, t.text = 0, t.text[:0]
}
