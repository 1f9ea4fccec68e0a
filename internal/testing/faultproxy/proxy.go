// Package faultproxy is a TCP proxy for tests: it sits between a process and its server
// and does to their connections what networks do. A test holds that only test files
// import it.
//
//	fault    connections that are open              new connections
//	Cut      are reset                              are reset at once
//	Hang     stay open, and nothing passes          are accepted, and nothing passes
//	Orphan   stay open on the client's side and     pass
//	         are silent for ever: their server
//	         ends are closed
//	Delay    everything arrives later, in order     so too
//
// Heal ends all but Orphan, whose connections cannot be repaired. Bytes that a hung connection
// held back pass then.
package faultproxy

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy passes connections on to one server. All its methods may be called at once.
type Proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	mode     mode
	delay    time.Duration
	changed  chan struct{} // closed when mode changes
	closed   bool
	links    map[*link]struct{}
	accepted int
}

type mode int

const (
	passing mode = iota
	cutting
	hanging
)

// Start listens on a free loopback port and passes connections on to target, HOST:PORT, until
// the test ends.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &Proxy{target: target, listener: l, changed: make(chan struct{}), links: make(map[*link]struct{})}
	p.running.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

// Host is HOST:PORT.
func (p *Proxy) Host() string { return p.listener.Addr().String() }

// Accepted is how many connections were made so far, also if they were reset at once.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Cut resets all connections, and new ones, until Heal.
func (p *Proxy) Cut() {
	for _, l := range p.set(cutting) {
		l.reset()
	}
}

// Hang keeps everything back until Heal.
func (p *Proxy) Hang() { p.set(hanging) }

// Orphan closes the server ends of all connections, and leaves the clients in the belief
// that theirs are open.
func (p *Proxy) Orphan() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.orphan()
	}
}

// Delay has everything arrive later by d from now on; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal ends Cut, Hang and Delay.
func (p *Proxy) Heal() {
	p.Delay(0)
	p.set(passing)
}

func (p *Proxy) set(m mode) (links []*link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) serve() {
	for {
		c, err := p.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // the client has gone again
			continue
		}
		if l := p.add(c.(*net.TCPConn)); l != nil {
			p.running.Go(func() { l.run() })
		}
	}
}

// add returns nil where the connection was reset.
func (p *Proxy) add(client *net.TCPConn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	l := &link{p: p, client: client, ended: make(chan struct{})}
	if p.mode == cutting || p.closed {
		l.reset()
		return nil
	}
	p.links[l] = struct{}{}
	return l
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// open waits while the proxy hangs, and reports false when ended is closed before.
func (p *Proxy) open(ended <-chan struct{}) bool {
	for {
		p.mu.Lock()
		mode, changed := p.mode, p.changed
		p.mu.Unlock()
		if mode == hanging {
			select {
			case <-changed:
				continue
			case <-ended:
			}
		}
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
}

func (p *Proxy) delayed() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}
