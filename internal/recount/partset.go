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
	seed maphash.Seed
	keys map[[16]byte]struct{}
}

func newPartSet() *partSet { return &partSet{maphash.MakeSeed(), make(map[[16]byte]struct{})} }

// add reports whether the entry is new.
func (s *partSet) add(id wire.PartID, minute wire.Minute, counter string) bool {
	h := maphash.String(s.seed, counter)
	before := len(s.keys)
	var key [16]byte
	binary.BigEndian.PutUint64(key[:8], binary.BigEndian.Uint64(id[:8])^h)
	binary.BigEndian.PutUint64(key[8:], binary.BigEndian.Uint64(id[8:])+h^uint64(minute/60))
	s.keys[key] = struct{}{}
	return len(s.keys) > before
}

// roundOf is the round, of that many, in which the part is counted.
func roundOf(id wire.PartID, rounds uint64) uint64 {
	return binary.BigEndian.Uint64(id[4:]) % rounds
}
