package publisher

import (
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/countmill/countmill/wire"
)

// knownKeys has the Idempotency-Keys that this process has admitted. It forgets the least
// recently used keys first: it refuses a key only to answer early; the marker in the store
// decides. The caller must lock it.
type knownKeys struct {
	lru *simplelru.LRU[wire.PartID, *knownKey]
}

// A knownKey is a remembered key with its request.
type knownKey struct {
	id      wire.PartID // id of the request's head, from principal and key
	request wire.Fingerprint
	copies  int // requests admitted and not withdrawn; flushed ones stay
}

func newKnownKeys(size int) *knownKeys {
	lru, err := simplelru.NewLRU[wire.PartID, *knownKey](size, nil)
	if err != nil {
		panic(err) // size is validated
	}
	return &knownKeys{lru: lru}
}

// conflicts reports whether the key was used for another request.
func (k *knownKeys) conflicts(head *wire.Part) bool {
	known, ok := k.lru.Get(head.ID)
	return ok && known.request != head.Request
}

// admit notes a request that does not conflict, or one more copy of it.
func (k *knownKeys) admit(head *wire.Part) *knownKey {
	known, ok := k.lru.Get(head.ID)
	if !ok {
		known = &knownKey{id: head.ID, request: head.Request}
		k.lru.Add(head.ID, known)
	}
	known.copies++
	return known
}

// withdraw removes a copy that was not flushed. The last copy removes the key too, so that the
// caller may use it for another body.
func (k *knownKeys) withdraw(known *knownKey) {
	known.copies--
	if known.copies == 0 {
		k.forget(known)
	}
}

// forget removes a key that the store has with another request. Else that other request would be
// refused here.
func (k *knownKeys) forget(known *knownKey) {
	if current, ok := k.lru.Peek(known.id); ok && current == known {
		k.lru.Remove(known.id)
	}
}
