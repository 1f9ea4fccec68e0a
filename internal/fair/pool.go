package fair

import "sync"

// A Pool bounds something of which there is only so much: bytes, places, calls. It is safe for concurrent use.
//
// A caller has at most keen times the free amount. One caller alone gets keen/(keen+1) of the pool, two callers keen/(2*keen+1)
// each. However many there are, something stays free for a caller with little. A caller that has nothing gets all that is free.
type Pool struct {
	most, keen int

	mu    sync.Mutex
	usage Usage
}

// NewPool returns a pool. Larger keen leaves less free: use 1 where the pool has few places.
func NewPool(most, keen int) *Pool { return &Pool{most: most, keen: keen} }

// Most is the size of the pool.
func (p *Pool) Most() int { return p.most }

// Own is the share of a caller that is alone.
func (p *Pool) Own() int { return max(p.most*p.keen/(p.keen+1), 1) }

// Used is how much of the pool is taken.
func (p *Pool) Used() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usage.Used()
}

// Take gives n to the caller, or returns false if that is more than the caller's share.
func (p *Pool) Take(caller string, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return n == 0 || p.usage.Take(caller, n, p.ownLocked(caller, n))
}

// Fits reports whether Take would return true.
func (p *Pool) Fits(caller string, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return n == 0 || p.usage.Of(caller)+n <= p.ownLocked(caller, n)
}

// ownLocked is the caller's share once n more is taken.
func (p *Pool) ownLocked(caller string, n int) int {
	free := p.most - p.usage.Used() - n
	// A caller with nothing gets the last free one, or nobody would ever use it.
	if n == 1 && free == 0 && p.usage.Of(caller) == 0 {
		return 1
	}
	return p.keen * free
}

// Give takes n back.
func (p *Pool) Give(caller string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n != 0 {
		p.usage.Give(caller, n)
	}
}
