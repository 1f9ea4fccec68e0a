package shards

import "strings"

// memory keeps the heat of counters. Its size is bounded: when the newer half is full, the older
// half is forgotten; a counter that is used moves to the newer half.
type memory struct {
	half         int
	newer, older map[string]*heat
}

func newMemory(remember int) memory {
	return memory{half: max(remember/2, 1), newer: make(map[string]*heat)}
}

func (m *memory) get(counter string) *heat {
	if h := m.newer[counter]; h != nil {
		return h
	}
	h := m.older[counter]
	if h != nil {
		m.put(h)
	}
	return h
}

func (m *memory) add(counter string) *heat {
	h := &heat{name: strings.Clone(counter)} // the caller's string is cut from a message
	m.put(h)
	return h
}

func (m *memory) put(h *heat) {
	if len(m.newer) >= m.half {
		m.older, m.newer = m.newer, make(map[string]*heat)
	}
	m.newer[h.name] = h
}
