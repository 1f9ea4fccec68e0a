package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serve runs a server until the test ends, and returns its address.
func serve(t *testing.T, h http.HandlerFunc, cfg ServerConfig) (*Server, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, ln, h, cfg), ln.Addr().String()
}

func serveOn(t *testing.T, ln net.Listener, h http.HandlerFunc, cfg ServerConfig) *Server {
	t.Helper()
	srv := NewServer(h, cfg)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return srv
}

// dial sends text and returns a reader of the answers.
func dial(t *testing.T, addr, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * time.Minute)) // for longer than any machine needs
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func TestPanicIsAnsweredAndLogged(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	h := Recover(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // must not count as an answer
		panic("secret")
	}), slog.New(slog.NewTextHandler(&logged, nil)))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/x", nil))
	if p := problemOf(t, w.Result()); p.Status != 500 || strings.Contains(p.Detail, "secret") {
		t.Errorf("got %+v, want a 500 without internals", p)
	}
	if got := w.Header().Get("Content-Encoding"); got != "" {
		t.Errorf("got Content-Encoding %q left from the handler", got)
	}
	if got := logged.String(); !strings.Contains(got, "secret") || !strings.Contains(got, "server_test.go") {
		t.Errorf("got log %q, want the panic and its stack", got)
	}
}

func TestPanicAfterTheAnswerBeganCutsTheConnection(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(http.ResponseWriter) error{
		"write":  func(w http.ResponseWriter) error { _, err := io.WriteString(w, `{"total":1`); return err },
		"header": func(w http.ResponseWriter) error { w.WriteHeader(200); return nil },
		"flush":  func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
	} {
		_, addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if err := begin(w); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			panic("late")
		}, ServerConfig{})
		_, in := dial(t, addr, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
		}
		if err == nil {
			t.Errorf("%s: half an answer arrives as a whole one", name)
		}
	}
}

// Neither the time-out of a body nor the server's ReadTimeout may end a handler that
// has its request: net/http would take either for a client that has gone.
func TestReadDeadlinesDoNotEndTheHandler(t *testing.T) {
	t.Parallel()
	const short = 50 * time.Millisecond
	for name, request := range map[string]string{
		"body":       "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
		"chunks":     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"no body":    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"empty body": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := serveInMemory(t, func(w http.ResponseWriter, r *http.Request) {
				if _, err := (BodyReader{Max: MaxBody, Timeout: short}).Read(w, r, nil); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				select {
				case <-r.Context().Done():
					t.Errorf("%s: the context ended: %v", name, context.Cause(r.Context()))
				case <-time.After(4 * short):
				}
				fmt.Fprint(w, "done")
			}, ServerConfig{ReadTimeout: short, WriteTimeout: time.Hour})
			_, in := p.dial(t, request)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != "done" {
				t.Errorf("%s: got %q, %v", name, body, err)
			}
		})
	}
}

func TestShutdownCutsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	srv, addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}, ServerConfig{})
	dial(t, addr, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := srv.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
}

// The server gives up a body that holds much and brings little, long before its time-out. It
// reads a body that comes fast enough, and a small body at any speed.
func TestBodiesBringALeastRate(t *testing.T) {
	for _, tt := range []struct {
		name               string
		first, then, total int
		every              time.Duration
		want               int
	}{
		{"stops in the middle", 100 << 10, 0, 8 << 20, time.Second, 408},
		{"trickles", 100 << 10, 10 << 10, 8 << 20, time.Second, 408},
		{"is slow", 100 << 10, 90 << 10, 1 << 20, time.Second, 200},
		{"is small and slow", 1 << 10, 1 << 10, 20 << 10, time.Second, 200},
		{"is fast", 4 << 20, 4 << 20, 8 << 20, time.Millisecond, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testLeastRate(t, tt.first, tt.then, tt.total, tt.every, tt.want) })
		})
	}
}

func testLeastRate(t *testing.T, first, then, total int, every time.Duration, want int) {
	p := serveInMemory(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := BodyReader{Max: MaxBody, Timeout: 30 * time.Second}.Read(w, r, nil)
		if err != nil {
			WriteError(w, r, slog.New(slog.DiscardHandler), err)
			return
		}
		fmt.Fprint(w, len(body))
	}, ServerConfig{})
	conn, in := p.dial(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", total))
	began := time.Now()
	go func() {
		for sent, n := 0, first; sent < total && n > 0; sent, n = sent+n, then {
			if _, err := conn.Write(make([]byte, min(n, total-sent))); err != nil {
				return
			}
			time.Sleep(every)
		}
	}()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer time.Sleep(time.Minute) // until everything has ended
	defer conn.Close()
	defer resp.Body.Close()
	if took := time.Since(began); resp.StatusCode != want || want == 408 && took > bodyWindow+time.Second {
		t.Errorf("got %d after %s, want %d, a refusal within %s", resp.StatusCode, took, want, bodyWindow)
	}
}
