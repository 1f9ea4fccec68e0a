package memcached

import (
	"context"
	"net"
	"time"
)

// A conn bounds a whole exchange. gomemcache restarts its time-out with every item of an answer, so
// 1,000 items could take 1,000 time-outs.
type conn struct {
	net.Conn
	timeout time.Duration
	asking  bool // the last request has no answer yet
}

// dial returns a function that connects within timeout.
func dial(timeout time.Duration) func(context.Context, string, string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, timeout: timeout}, nil
	}
}

// SetDeadline does nothing: conn sets the deadlines, and gomemcache's calls must not move them.
func (c *conn) SetDeadline(time.Time) error { return nil }

// Write begins an exchange, unless one is under way.
func (c *conn) Write(p []byte) (int, error) {
	if !c.asking {
		c.asking = true
		if err := c.Conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

func (c *conn) Read(p []byte) (int, error) {
	c.asking = false
	return c.Conn.Read(p)
}
