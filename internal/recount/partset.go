package recount

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/countmill/countmill/wire"
)

// A partSet knows which entries it has seen: a part has a counter once. It compares 128 bits of id, counter and hour. Ids
// are random or hashes, and the counter's hash has a seed, so nobody can choose two entries that are alike.
//
// The hour is that of the part's minute (scanner.usedAt). An id is forgotten with its marker (store.MarkerSlack), and whoever uses it
// again after that counts again. Such a part has a time over 2 hours later, so another hour. A copy of a part has the same minute.
type partSet struct {
	seed  maphash.Seed
	slots [][2]uint64 // a power of 2; zero is empty
	n     int
}

func newPartSet() *partSet {
	return &partSet{seed: maphash.MakeSeed(), slots: make([][2]uint64, 1<<10)}
}

// clear forgets all entries and keeps the memory: a new table each round would double it.
func (s *partSet) clear() {
	clear(s.slots)
	s.n = 0
}

// add reports whether the entry is new.
func (s *partSet) add(id wire.PartID, minute wire.Minute, counter string) bool {
	h := maphash.String(s.seed, counter)
	key := [2]uint64{binary.BigEndian.Uint64(id[:8]) ^ h, binary.BigEndian.Uint64(id[8:]) + h ^ uint64(minute/60)}
	if key == ([2]uint64{}) {
		key[0] = 1
	}
	if 4*s.n > 3*len(s.slots) {
		s.grow()
	}
	at, found := s.find(key)
	if found {
		return false
	}
	s.slots[at] = key
	s.n++
	return true
}

func (s *partSet) find(key [2]uint64) (at int, found bool) {
	mask := len(s.slots) - 1
	for at = int((key[0]^key[1]*0x9e3779b97f4a7c15)>>7) & mask; ; at = (at + 1) & mask {
		switch s.slots[at] {
		case key:
			return at, true
		case [2]uint64{}:
			return at, false
		}
	}
}

func (s *partSet) grow() {
	old := s.slots
	s.slots = make([][2]uint64, 2*len(old))
	for _, key := range old {
		if key != ([2]uint64{}) {
			at, _ := s.find(key)
			s.slots[at] = key
		}
	}
}

// roundOf is the round, of that many, in which the part is counted.
func roundOf(id wire.PartID, rounds uint64) uint64 {
	return binary.BigEndian.Uint64(id[4:]) % rounds
}
