package reader

import "sync"

// busy is a set of names that one caller each is working on. Its zero value is empty.
type busy struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// begin reports whether the caller may work on the name. If so, it must call end.
func (b *busy) begin(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.names[name]; ok {
		return false
	}
	if b.names == nil {
		b.names = make(map[string]struct{})
	}
	b.names[name] = struct{}{}
	return true
}

func (b *busy) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.names)
}

func (b *busy) end(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.names, name)
}
