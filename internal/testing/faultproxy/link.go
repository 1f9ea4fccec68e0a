package faultproxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A link is one connection of a client, and that to the server it leads to.
type link struct {
	p      *Proxy
	client *net.TCPConn
	once   sync.Once
	ended  chan struct{} // closed when nothing passes any more

	mu       sync.Mutex
	server   *net.TCPConn // nil until there is one
	orphaned bool
}

// reset ends both sides at once, as a RST does.
func (l *link) reset() {
	l.once.Do(func() { close(l.ended) })
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range []*net.TCPConn{l.client, l.server} {
		if c != nil {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
}

// orphan ends the server's side alone. The client's end is kept until the proxy ends.
func (l *link) orphan() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orphaned = true
	l.once.Do(func() { close(l.ended) })
	if l.server != nil {
		_ = l.server.Close()
	}
}

// run passes bytes both ways until both have ended.
func (l *link) run() {
	defer l.p.remove(l)
	defer l.reset()
	if l.connect() {
		var both sync.WaitGroup
		both.Go(func() { l.pass(l.server, l.client) })
		both.Go(func() { l.pass(l.client, l.server) })
		both.Wait()
	}
	if l.isOrphan() {
		_, _ = io.Copy(io.Discard, l.client) // until the client gives up, or Cut
	}
}

func (l *link) isOrphan() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.orphaned
}

func (l *link) connect() bool {
	if !l.p.open(l.ended) {
		return false
	}
	c, err := net.DialTimeout("tcp", l.p.target, 10*time.Second)
	if err != nil {
		l.reset()
		return false
	}
	l.mu.Lock()
	l.server = c.(*net.TCPConn)
	l.mu.Unlock()
	select {
	case <-l.ended: // reset in the meantime
		_ = c.Close()
		return false
	default:
		return true
	}
}

// A chunk is bytes that pass when it is time.
type chunk struct {
	data []byte
	due  time.Time
}

// pass copies one direction. A reader goes ahead of the writer, for a delay to hold up
// each byte and not the rate.
func (l *link) pass(to, from *net.TCPConn) {
	chunks := make(chan chunk, 256)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		l.read(from, chunks)
	})
	l.write(to, chunks)
	reading.Wait()
}

func (l *link) read(from *net.TCPConn, chunks chan<- chunk) {
	for l.p.open(l.ended) {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case chunks <- chunk{buf[:n], time.Now().Add(l.p.delayed())}:
			case <-l.ended:
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				l.broken()
			}
			return
		}
	}
}

// broken resets both sides where one was.
func (l *link) broken() {
	select {
	case <-l.ended: // by this proxy
	default:
		l.reset()
	}
}

// write half-closes to when all has passed.
func (l *link) write(to *net.TCPConn, chunks <-chan chunk) {
	for c := range chunks {
		wait := time.NewTimer(time.Until(c.due))
		select {
		case <-wait.C:
		case <-l.ended:
		}
		wait.Stop()
		if !l.p.open(l.ended) {
			return
		}
		if _, err := to.Write(c.data); err != nil {
			l.broken()
			return
		}
	}
	select {
	case <-l.ended:
	default:
		_ = to.CloseWrite()
	}
}
