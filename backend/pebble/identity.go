package pebble

import "crypto/rand"

// An identity separates this process's cached totals from those of all others. It is drawn at each
// start and never stored. A copied directory or a restored backup has the original's id but different
// totals, so the id alone is not enough.
type identity struct {
	prefix string
	key    [32]byte
}

func newIdentity() (x identity) {
	x.prefix = "cm:" + rand.Text() + ":"
	_, _ = rand.Read(x.key[:])
	return x
}

// CacheIdentity returns the prefix of this store's cache keys, and the key of their checksums. Both
// change at each start, so a start finds nothing in the cache.
func (s *Store) CacheIdentity() (prefix string, key [32]byte) {
	return s.identity.prefix, s.identity.key
}
