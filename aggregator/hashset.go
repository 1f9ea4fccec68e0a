package aggregator

// A hashSet counts distinct hashes by open addressing: probing starts at the low bits. Two things
// with one hash count as one. Callers must use hashes with a secret seed (place), so that nobody
// can choose names that collide. At most half of the slots are taken.
type hashSet struct {
	slots []uint64 // 0: free
	n     int
}

const minHashSlots = 64

func (s *hashSet) add(hash uint64) {
	if hash == 0 {
		hash = 1
	}
	if 2*s.n >= len(s.slots) {
		s.grow()
	}
	mask := uint64(len(s.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch s.slots[i] {
		case 0:
			s.slots[i] = hash
			s.n++
			return
		case hash:
			return
		}
	}
}

func (s *hashSet) grow() {
	old := s.slots
	s.slots, s.n = make([]uint64, max(minHashSlots, 2*len(old))), 0
	for _, hash := range old {
		if hash != 0 {
			s.add(hash)
		}
	}
}

// clear empties the set. It shrinks a set that was mostly empty, so that small sets do not pay
// for a large one before.
func (s *hashSet) clear() {
	if len(s.slots) > max(minHashSlots, 16*s.n) {
		s.slots = make([]uint64, max(minHashSlots, len(s.slots)/16))
	} else {
		clear(s.slots)
	}
	s.n = 0
}
