package pebble

import "crypto/rand"

// An identity keeps the cached totals of this process apart from all others. It is drawn at each
// start and never written down: a copy of the directory, or a backup that was restored, has the
// id of the original, and totals of its own.
type identity struct {
	prefix string
	key    [32]byte
}

func newIdentity() (x identity) {
	x.prefix = "cm:" + rand.Text() + ":"
	_, _ = rand.Read(x.key[:])
	return x
}

// CacheIdentity is the prefix under which a cache keeps totals of this store, and the key of their
// checksums. The price is that a start finds nothing in the cache.
func (s *Store) CacheIdentity() (prefix string, key [32]byte) {
	return s.identity.prefix, s.identity.key
}
