package httpserver

import (
	"container/list"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A connLimit is a listener that has at most max connections open. It never waits for room.
//
// A connection is a guest until a call on it is let in: until it has shown a valid token or, without
// tokens, asked for more than everybody may. Then it is a member. Members have three quarters of
// the limit, so guests always have room: a new connection replaces another guest, and never a member. A
// new member replaces another member (members.go). The connection that has waited longest for its client
// gives way first: for a request, or for the rest of one, of which nothing was done.
type connLimit struct {
	net.Listener
	max   int
	hurry atomic.Pointer[time.Time] // when bodies have to be there; nil: by their own deadlines

	mu      sync.Mutex
	open    int
	turn    uint64 // numbers waits, so that crowds can be compared
	guests  crowd
	members members
}

// limitConns has room for a guest and a member at least.
func limitConns(most int) *connLimit {
	most = max(most, 2)
	return &connLimit{max: most, members: members{max: most - max(most/4, 1), of: make(map[string]*crowd)}}
}

// A crowd is the connections of all guests, or of the members with one token. The longest wait is first.
type crowd struct {
	waiting, busy list.List // of *limitedConn
}

func (c *crowd) size() int { return c.waiting.Len() + c.busy.Len() }

// longest is the connection that has waited longest for its client, or nil.
func (c *crowd) longest() *limitedConn { return firstOf(&c.waiting) }

func firstOf(l *list.List) *limitedConn {
	if first := l.Front(); first != nil {
		return first.Value.(*limitedConn)
	}
	return nil
}

type limitedConn struct {
	net.Conn
	limit *connLimit

	caller string
	crowd  *crowd     // nil once it was closed
	in     *list.List // of the crowd
	place  *list.Element
	since  uint64 // the number of its wait

	arriving bool // it waits for the rest of a request
}

// Accept returns the next connection.
func (l *connLimit) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.max {
		l.replaceGuestLocked()
	}
	l.open++
	c := &limitedConn{Conn: conn, limit: l, crowd: &l.guests}
	c.placeLocked(&l.guests.waiting)
	return c, nil
}

func (l *connLimit) replaceGuestLocked() {
	guest := l.guests.longest()
	// Guests ask for little: one may give way while it is answered.
	if guest == nil {
		guest = firstOf(&l.guests.busy)
	}
	_ = guest.closeLocked()
}

// state is for http.Server.ConnState.
func (l *connLimit) state(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*limitedConn)
	switch {
	case !ok:
	case state == http.StateActive:
		c.moves(false, false)
	case state == http.StateIdle:
		c.moves(true, false)
	}
}

// moves records whether the connection waits for its client now, and whether for the rest of a request.
// A nil connection is one without a limit.
func (c *limitedConn) moves(waits, arriving bool) {
	if c == nil {
		return
	}
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	if c.crowd == nil {
		return
	}
	c.arriving = arriving
	if waits {
		c.placeLocked(&c.crowd.waiting)
	} else {
		c.placeLocked(&c.crowd.busy)
	}
}

// placeLocked puts the connection at the end of a list of its crowd.
func (c *limitedConn) placeLocked(at *list.List) {
	c.leaveLocked()
	c.limit.turn++
	c.since, c.in, c.place = c.limit.turn, at, at.PushBack(c)
}

func (c *limitedConn) leaveLocked() {
	if c.in != nil {
		c.in.Remove(c.place)
		c.in = nil
	}
}

func (c *limitedConn) closeLocked() error {
	if c.crowd != nil {
		c.leaveLocked()
		c.limit.members.leaveLocked(c)
		c.crowd = nil
		c.limit.open--
	}
	return c.Conn.Close()
}

// Close gives the connection's place back.
func (c *limitedConn) Close() error {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	return c.closeLocked()
}

// CloseWrite ends the answers to the client, if the connection can.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetReadDeadline is that of the connection, or sooner for the rest of a request after hurryBodies.
func (c *limitedConn) SetReadDeadline(t time.Time) error {
	if end := c.limit.hurry.Load(); end != nil && (t.IsZero() || t.After(*end)) && c.arrives() {
		t = *end
	}
	return c.Conn.SetReadDeadline(t)
}

// Read says why the rest of a request is missing after hurryBodies.
func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.limit.hurry.Load() != nil && errors.Is(err, os.ErrDeadlineExceeded) && c.arrives() {
		err = ErrStopping
	}
	return n, err
}

func (c *limitedConn) arrives() bool {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	return c.arriving
}

// hurryBodies ends all waits for the rest of a request at a moment.
func (l *connLimit) hurryBodies(end time.Time) {
	if !l.hurry.CompareAndSwap(nil, &end) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.eachWaitingLocked(func(c *limitedConn) {
		if c.arriving {
			_ = c.Conn.SetReadDeadline(end)
		}
	})
}

// stop ends connections that wait for a request: net/http keeps a connection without any request for five seconds. Guests have a
// moment to read their answers.
func (l *connLimit) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := l.guests.busy.Front(); at != nil; at = at.Next() {
		_ = at.Value.(*limitedConn).SetWriteDeadline(time.Now().Add(hurry))
	}
	l.eachWaitingLocked(func(c *limitedConn) {
		if !c.arriving {
			_ = c.closeLocked()
		}
	})
}

func (l *connLimit) eachWaitingLocked(f func(*limitedConn)) {
	crowds := []*crowd{&l.guests}
	for _, c := range l.members.of {
		crowds = append(crowds, c)
	}
	for _, c := range crowds {
		for at := c.waiting.Front(); at != nil; {
			next := at.Next()
			f(at.Value.(*limitedConn))
			at = next
		}
	}
}
