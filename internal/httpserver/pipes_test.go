package httpserver

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
)

// pipes is a listener whose connections are in memory. Tests in a bubble use it: there
// deadlines are of virtual time, synctest.Wait knows that a server has nothing more to do,
// and how busy the machine is plays no part.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// serveInMemory is serve, on pipes.
func serveInMemory(t *testing.T, h http.HandlerFunc, cfg ServerConfig) *pipes {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	serveOn(t, p, h, cfg)
	return p
}

// dial connects and sends text, and returns when the server can do no more with it.
func (p *pipes) dial(t *testing.T, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, server := net.Pipe()
	t.Cleanup(func() { conn.Close() })
	p.conns <- server
	if text != "" {
		go func() { _, _ = io.WriteString(conn, text) }() // a server that is full does not read it yet
	}
	synctest.Wait()
	return conn, bufio.NewReader(conn)
}
