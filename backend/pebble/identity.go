package pebble

import "crypto/rand"

// An identity tells what this process caches from what any other does. It is drawn at each
// start and kept nowhere: a copy of the directory, or a backup that was restored, has the id of
// the original, and totals of its own.
type identity struct {
	prefix string
	key    [32]byte
}

func newIdentity() (x identity) {
	x.prefix = "cm:" + rand.Text() + ":"
	_, _ = rand.Read(x.key[:])
	return x
}

// CacheIdentity is what a cache beside other processes keeps totals of this store under. The
// price is that a cache has nothing of this store after a start.
func (s *Store) CacheIdentity() (prefix string, key [32]byte) {
	return s.identity.prefix, s.identity.key
}
