package httpserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// members are the connections of callers that were let in, by the name of the token; "" without tokens.
type members struct {
	max  int
	open int
	of   map[string]*crowd
}

// perFree is how many connections a token may have for each free one of members: however many it
// opens, it leaves a ninth to others. Where bodies share memory, callers have the same share.
const perFree = 8

// roomLocked makes room for one more connection of a caller, and reports whether there is. A
// caller beyond its share replaces its own connection that has waited longest. If no place is free, any
// caller's may give way. Connections with a request under way do not.
func (m *members) roomLocked(caller string) bool {
	free, own := m.max-m.open, 0
	var first *limitedConn
	if c := m.of[caller]; c != nil {
		own, first = c.size(), c.longest()
	}
	if free > 0 && (caller == "" || own < perFree*free) {
		return true
	}
	if first == nil && free == 0 {
		first = m.longestLocked()
	}
	if first == nil {
		return false
	}
	_ = first.closeLocked()
	return true
}

// longestLocked is the member that has waited longest for its client, or nil.
func (m *members) longestLocked() (longest *limitedConn) {
	for _, c := range m.of {
		if first := c.longest(); first != nil && (longest == nil || first.since < longest.since) {
			longest = first
		}
	}
	return longest
}

// joinLocked counts a connection for a caller. It keeps its state.
func (m *members) joinLocked(c *limitedConn, caller string) {
	to := m.of[caller]
	if to == nil {
		to = new(crowd)
		m.of[caller] = to
	}
	waits := c.in == &c.crowd.waiting
	c.leaveLocked()
	m.leaveLocked(c)
	m.open++
	c.crowd, c.caller = to, caller
	if waits {
		c.placeLocked(&to.waiting)
	} else {
		c.placeLocked(&to.busy)
	}
}

// leaveLocked forgets a connection that has left its list, if it is a member.
func (m *members) leaveLocked(c *limitedConn) {
	if c.crowd == &c.limit.guests {
		return
	}
	m.open--
	if c.crowd.size() == 0 {
		delete(m.of, c.caller)
	}
}

type connKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// connOf is the connection of a request; nil if it came another way.
func connOf(r *http.Request) *limitedConn {
	c, _ := r.Context().Value(connKey{}).(*limitedConn)
	return c
}

// LetIn makes the connection of a request a member, for a caller with a valid token; "" without tokens.
// A connection of a proxy counts for the caller of its latest request. The error says that there is no room.
func LetIn(r *http.Request, caller string) error {
	c := connOf(r)
	if c == nil {
		return nil
	}
	l := c.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	switch member := c.crowd != &l.guests; {
	case c.crowd == nil || member && c.caller == caller:
		return nil
	case !member && !l.members.roomLocked(caller):
		return tooManyConns(l.members.max)
	}
	l.members.joinLocked(c, caller)
	return nil
}

func tooManyConns(most int) error {
	p := NewProblem(http.StatusTooManyRequests, "overloaded", "overloaded",
		fmt.Sprintf("too many connections have requests under way (limit: %d of all callers, and a share of them for each token): nothing of this request was done, repeat it later", most))
	p.Field, p.Limit = "connections", fmt.Sprint(most)
	return p.RetryAfter(retryOverloaded)
}
