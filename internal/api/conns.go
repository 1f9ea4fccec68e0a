package api

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// A connLimit is a listener that has at most max connections open. At the limit, a new
// connection replaces the connection that has waited longest for a request: a client with
// many idle connections must not keep others out. If each has a request under way, the new
// connection waits.
type connLimit struct {
	net.Listener
	max int

	mu      sync.Mutex
	changed *sync.Cond // a connection was closed or waits, or the listener was closed
	closed  bool
	open    int
	waiting *list.List // of *limitedConn, the longest wait first
}

func limitConns(ln net.Listener, max int) *connLimit {
	l := &connLimit{Listener: ln, max: max, waiting: list.New()}
	l.changed = sync.NewCond(&l.mu)
	return l
}

type limitedConn struct {
	net.Conn
	limit *connLimit
	place *list.Element // in waiting, or nil
	done  bool
}

// Accept returns the next connection, once there is room for it.
func (l *connLimit) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: conn, limit: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open >= l.max && !l.closed {
		if first := l.waiting.Front(); first != nil {
			_ = l.closeLocked(first.Value.(*limitedConn))
			continue
		}
		l.changed.Wait()
	}
	if l.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	l.open++
	return c, nil
}

// Close stops accepting. Connections stay open.
func (l *connLimit) Close() error {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// state is for http.Server.ConnState.
func (l *connLimit) state(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*limitedConn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(c)
	if (state == http.StateNew || state == http.StateIdle) && !c.done {
		c.place = l.waiting.PushBack(c)
		l.changed.Broadcast()
	}
}

func (l *connLimit) forgetLocked(c *limitedConn) {
	if c.place != nil {
		l.waiting.Remove(c.place)
		c.place = nil
	}
}

func (l *connLimit) closeLocked(c *limitedConn) error {
	l.forgetLocked(c)
	if !c.done {
		c.done = true
		l.open--
		l.changed.Broadcast()
	}
	return c.Conn.Close()
}

// Close gives the connection's place back.
func (c *limitedConn) Close() error {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	return c.limit.closeLocked(c)
}
