package app

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/httpserver"
)

// The cost of a request, compared with a handler of net/http that reads the body and gives an
// answer of the same length: the handler alone, and over connections that are kept open. The
// client is in the same process, but allocates nothing.
//
//	go test ./internal/app -run '^$' -bench HTTP -count 6
func BenchmarkHTTP(b *testing.B) {
	up := start(b, b.TempDir())
	up.incr(b, `{"counter":"page:/u/000000000001","delta":1000}`)
	total := httpCall{"GET /v1/totals?counter=page:/u/000000000001&max_staleness=1h HTTP/1.1\r\nHost: localhost\r\n\r\n",
		200, `{"totals":[{"counter":"page:/u/000000000001","total":1000,"as_of":"2026-01-02T15:04:05.123456Z","source":"cache","shards":1,"exists":true}],"lag":0.000001}` + "\n"}
	const body = `{"counter":"page:/u/000000000001"}`
	increment := httpCall{fmt.Sprintf("POST /v1/increments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		202, `{"accepted":1}` + "\n"}
	routes := up.router
	for _, bc := range []struct {
		name string
		httpCall
	}{{"total", total}, {"increment", increment}} {
		bare := httptest.NewServer(bc.bare())
		defer bare.Close()
		b.Run(bc.name+"/handler/bare", func(b *testing.B) { bc.handle(b, bc.bare()) })
		b.Run(bc.name+"/handler/up", func(b *testing.B) { bc.handle(b, httpserver.Recover(routes, nil)) })
		for _, conns := range []int{8, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d/bare", bc.name, conns), func(b *testing.B) { bc.send(b, bare.Listener.Addr().String(), conns) })
			b.Run(fmt.Sprintf("%s/%d/up", bc.name, conns), func(b *testing.B) { bc.send(b, up.Addr(), conns) })
		}
	}
}

// An httpCall is a request, and the answer of a bare handler.
type httpCall struct {
	request string
	status  int
	answer  string
}

func (c httpCall) bare() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(c.status)
		_, _ = io.WriteString(w, c.answer)
	})
}

// A nobody is a ResponseWriter that costs nothing.
type nobody struct {
	header http.Header
	status int
}

func (w *nobody) Header() http.Header             { return w.header }
func (w *nobody) Write(p []byte) (int, error)     { return len(p), nil }
func (w *nobody) WriteHeader(status int)          { w.status = status }
func (w *nobody) SetReadDeadline(time.Time) error { return nil }

func (c httpCall) handle(b *testing.B, h http.Handler) {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(c.request)))
	if err != nil {
		b.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		b.Fatal(err)
	}
	body, w := bytes.NewReader(text), &nobody{header: make(http.Header)}
	r.Body = io.NopCloser(body)
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(text)
		if h.ServeHTTP(w, r); w.status != c.status {
			b.Fatalf("status %d, want %d", w.status, c.status)
		}
	}
}

func (c httpCall) send(b *testing.B, addr string, conns int) {
	clients := make([]*caller, conns)
	for i := range clients {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		clients[i] = &caller{conn: conn, in: bufio.NewReader(conn)}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for _, cl := range clients {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := cl.call(c.request, c.status); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A caller looks only for the end of an answer.
type caller struct {
	conn net.Conn
	in   *bufio.Reader
}

func (c *caller) call(request string, status int) error {
	if _, err := io.WriteString(c.conn, request); err != nil {
		return err
	}
	got, length := 0, 0
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first {
			got = number(line[len("HTTP/1.1 "):])
		} else if rest, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length = number(rest)
		} else if len(line) == 2 {
			break
		}
	}
	if got != status {
		return fmt.Errorf("status %d, want %d", got, status)
	}
	_, err := c.in.Discard(length)
	return err
}

// number returns the number at the start of text.
func number(text []byte) (n int) {
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + int(c-'0')
	}
	return n
}
