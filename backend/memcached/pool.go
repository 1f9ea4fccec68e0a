package memcached

import (
	"errors"
	"sync"
)

var errClosed = errors.New("memcached: the cache is closed")

// A pool has the servers, and waits for exchanges in the background when it closes.
type pool struct {
	all []*server

	mu      sync.Mutex
	running sync.WaitGroup
	closed  bool
}

func newPool(cfg Config) *pool {
	p := new(pool)
	for _, name := range cfg.Servers {
		p.all = append(p.all, newServer(name, cfg))
	}
	return p
}

// begin runs f in the background, unless the pool is closed. close waits for f.
func (p *pool) begin(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Go(f)
	return true
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.running.Wait()
	for _, s := range p.all {
		_ = s.client.Close() // closing idle connections loses nothing
	}
}
