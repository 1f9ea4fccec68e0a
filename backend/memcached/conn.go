package memcached

import (
	"context"
	"net"
	"time"
)

// A conn bounds each exchange as a whole. gomemcache begins its time-out anew with every
// item of an answer, so that 1,000 of them could take 1,000 time-outs.
type conn struct {
	net.Conn
	timeout time.Duration
	asking  bool // what was written last has no answer yet
}

// dial connects within timeout.
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

// SetDeadline is gomemcache's and has no effect.
func (c *conn) SetDeadline(time.Time) error { return nil }

// Write begins an exchange, unless one was begun.
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
