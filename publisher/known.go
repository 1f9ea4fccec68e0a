package publisher

import (
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/countmill/countmill/wire"
)

// knownKeys are the Idempotency-Keys that this process has admitted. It forgets the
// ones not seen for longest: a key is refused here to answer early, and by its marker
// in the store for certain. Its owner locks.
type knownKeys struct {
	lru *simplelru.LRU[wire.PartID, *knownKey]
}

// A knownKey is what a key stands for.
type knownKey struct {
	id      wire.PartID // of the request's head: principal and key
	request wire.Fingerprint
	copies  int // admitted and not withdrawn; one that is sealed stays
}

func newKnownKeys(size int) *knownKeys {
	lru, err := simplelru.NewLRU[wire.PartID, *knownKey](size, nil)
	if err != nil {
		panic(err) // size is validated
	}
	return &knownKeys{lru: lru}
}

// conflicts reports whether the key stands for another request.
func (k *knownKeys) conflicts(head *wire.Part) bool {
	known, ok := k.lru.Get(head.ID)
	return ok && known.request != head.Request
}

// admit notes one more copy of a request that does not conflict.
func (k *knownKeys) admit(head *wire.Part) *knownKey {
	known, ok := k.lru.Get(head.ID)
	if !ok {
		known = &knownKey{id: head.ID, request: head.Request}
		k.lru.Add(head.ID, known)
	}
	known.copies++
	return known
}

// withdraw takes a copy back that was not sealed. The key is forgotten with the last
// one, so that the caller may use it for another body.
func (k *knownKeys) withdraw(known *knownKey) {
	known.copies--
	if known.copies == 0 {
		k.forget(known)
	}
}

// forget drops a key that was used before with another request, as a store has found out: its
// first request must not be refused for the second.
func (k *knownKeys) forget(known *knownKey) {
	if current, ok := k.lru.Peek(known.id); ok && current == known {
		k.lru.Remove(known.id)
	}
}
