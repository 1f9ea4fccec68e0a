package httpserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/internal/auth"
)

// A testServer is a server in memory with calls of each kind, and callers "alice" and "bob", whose names are
// their tokens, or without tokens.
type testServer struct {
	*pipes
	t       *testing.T
	srv     *Server
	release chan struct{} // ends a call of /busy
}

type names []string

func (n names) Authenticate(secret string) (auth.Caller, error) {
	for _, name := range n {
		if name == secret {
			return auth.Caller{Name: name}, nil
		}
	}
	return auth.Caller{}, auth.ErrUnknown
}

func newTestServer(t *testing.T, tokens bool, conns int) *testServer {
	t.Helper()
	v := &testServer{t: t, release: make(chan struct{})}
	rt := NewRouter(nil)
	if tokens {
		rt.Guard(names{"alice", "bob"}, new(Refusals))
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })
	rt.Handle("GET", "/healthz", auth.Anyone, hello)
	rt.Handle("GET", "/read", auth.PerCounter(auth.Read), hello)
	rt.Handle("POST", "/typed", auth.PerCounter(auth.Publish), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := ContentType(r, "application/json")
		WriteError(w, r, slog.New(slog.DiscardHandler), err)
	}))
	rt.Handle("GET", "/busy", auth.PerCounter(auth.Read), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-v.release }))
	rt.Handle("POST", "/count", auth.PerCounter(auth.Publish), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := BodyReader{Max: MaxBody, Timeout: 30 * time.Second}.Read(w, r, nil)
		if err != nil {
			WriteError(w, r, slog.New(slog.DiscardHandler), err)
			return
		}
		fmt.Fprintf(w, "%s", body)
	}))
	v.pipes = &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	v.srv = serveOn(t, v.pipes, rt.ServeHTTP, ServerConfig{MaxConns: conns})
	return v
}

// A visitor is a connection of a caller.
type visitor struct {
	net.Conn
	from  *bufio.Reader
	token string
	t     *testing.T
}

func (v *testServer) visitor(token string) *visitor {
	v.t.Helper()
	conn, from := v.dial(v.t, "")
	return &visitor{conn, from, token, v.t}
}

// begins sends the start of a request, and returns when the server can do no more with it.
func (p *visitor) begins(method, path, rest string) {
	p.t.Helper()
	text := method + " " + path + " HTTP/1.1\r\nHost: x\r\n"
	if p.token != "" {
		text += "Authorization: Bearer " + p.token + "\r\n"
	}
	go func() { _, _ = io.WriteString(p, text+rest) }()
	synctest.Wait()
}

const noBody, halfBody = "\r\n", "Content-Length: 100\r\n\r\n{"

// reads returns the status of an answer, and 0 if the connection is over.
func (p *visitor) reads() int {
	p.t.Helper()
	resp, err := http.ReadResponse(p.from, nil)
	if err != nil {
		return 0
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		p.t.Errorf("half an answer: %v", err)
	}
	synctest.Wait()
	return resp.StatusCode
}

func (p *visitor) asks(path string) int {
	p.t.Helper()
	p.begins("GET", path, noBody)
	return p.reads()
}

// over reports whether the server ends the connection within a time, without a further answer.
func (p *visitor) over(within time.Duration) bool {
	_ = p.SetReadDeadline(time.Now().Add(within))
	defer func() { _ = p.SetReadDeadline(time.Time{}) }()
	_, err := p.from.ReadByte()
	return errors.Is(err, io.EOF)
}
