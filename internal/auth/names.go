package auth

import (
	"hash/maphash"
	"math/bits"
	"time"
)

// hour is how long names are remembered at least; some are remembered twice as long.
const hour = time.Hour

// names remembers names for an hour at least, in two Bloom filters: one for this hour and one for the
// hour before. A few in a hundred new names look known. When a filter is full, its hour ends early.
// Names are then forgotten sooner, and count as new again.
type names struct {
	seed      maphash.Seed // so that nobody can choose names that look known
	now, last []uint64     // made with the first name
	n, most   int          // number of names in now, and the most
	size      int          // of a filter, in words, a power of two
	turned    time.Time    // when this hour began
}

// probes is the number of bits of a name. A filter has at least 8 bits for each name.
const probes = 4

// newNames has room for twice the limit: the initial allowance, and the allowance of an hour.
func newNames(limit int64) names {
	most := max(2*int(limit), 8192)
	return names{seed: maphash.MakeSeed(), most: most, size: 1 << bits.Len(uint(most/8-1))}
}

func (s *names) hash(name string) uint64 { return maphash.String(s.seed, name) }

// turn begins a new hour if the last one is over.
func (s *names) turn(now time.Time) {
	switch past := now.Sub(s.turned); {
	case s.turned.IsZero():
		s.turned = now
	case past >= 2*hour:
		s.now, s.last, s.n, s.turned = nil, nil, 0, now
	case past >= hour:
		s.begin(now)
	}
}

func (s *names) begin(now time.Time) { s.now, s.last, s.n, s.turned = nil, s.now, 0, now }

// has reports whether a name is remembered.
func (s *names) has(hash uint64) bool { return s.in(s.now, hash) || s.in(s.last, hash) }

// add remembers a name, and reports whether it was new.
func (s *names) add(hash uint64, now time.Time) bool {
	if s.in(s.now, hash) {
		return false
	}
	added := !s.in(s.last, hash)
	if s.n == s.most {
		s.begin(now)
	}
	if s.now == nil {
		s.now = make([]uint64, s.size)
	}
	s.n++
	for i := range uint64(probes) {
		word, bit := s.place(hash, i)
		s.now[word] |= bit
	}
	return added
}

func (s *names) in(filter []uint64, hash uint64) bool {
	if filter == nil {
		return false
	}
	for i := range uint64(probes) {
		if word, bit := s.place(hash, i); filter[word]&bit == 0 {
			return false
		}
	}
	return true
}

// place returns the position of the i-th bit of a name.
func (s *names) place(hash, i uint64) (word, bit uint64) {
	at := hash + i*(hash>>32|1)
	return at >> 6 & uint64(s.size-1), 1 << (at & 63)
}
