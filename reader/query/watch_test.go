package query_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/reader/query"
)

// A stream reads what a watcher is sent, a block at a time.
type stream struct {
	tb   testing.TB
	resp *http.Response
	scan *bufio.Scanner
}

func openStream(tb testing.TB, url string) *stream {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	tb.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		tb.Fatalf("watch answers %d %s, want 200 text/event-stream", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return &stream{tb, resp, bufio.NewScanner(resp.Body)}
}

// next is the next block of lines, "" at the end of the stream.
func (s *stream) next() string {
	s.tb.Helper()
	var lines []string
	for s.scan.Scan() {
		if s.scan.Text() == "" {
			s.check(lines)
			return strings.Join(lines, "\n")
		}
		lines = append(lines, s.scan.Text())
	}
	return ""
}

// check holds an event against the OpenAPI document.
func (s *stream) check(lines []string) {
	s.tb.Helper()
	if len(lines) == 1 && strings.HasPrefix(lines[0], ":") {
		return
	}
	schema := map[string]string{"event: totals": "WatchEvent", "event: problem": "Problem"}[lines[0]]
	data, ok := strings.CutPrefix(lines[len(lines)-1], "data: ")
	if schema == "" || !ok || len(lines) != 2 {
		s.tb.Errorf("not an event: %q", lines)
		return
	}
	apitest.Load(s.tb).CheckSchema(s.tb, schema, []byte(data))
}

func (s *stream) want(block string) {
	s.tb.Helper()
	if got := s.next(); got != block {
		s.tb.Errorf("got\n%s\nwant\n%s", got, block)
	}
}

func TestWatchSendsWhatChanges(t *testing.T) {
	t.Parallel()
	f := newFake()
	srv, _ := start(t, f, query.Config{WriteTimeout: time.Second})
	s := openStream(t, srv.URL+"/v1/watch?counter=a&counter=a/b&interval=100ms")
	event := func(a int, rest string) string {
		return fmt.Sprintf("event: totals\ndata: {\"totals\":[{\"counter\":\"a\",\"total\":%d,%s,{\"counter\":\"a/b\",\"total\":4,%s],%s}", a, tail, tail, rest)
	}
	s.want(event(7, `"lag":0.1205,"rates":null`))
	f.set("b", 99)                      // not watched
	time.Sleep(1200 * time.Millisecond) // beyond all time-outs for one write
	f.set("a", 8)
	s.want(event(8, `"lag":0.1205,"rates":null`))
	f.mu.Lock()
	f.pipeline = reader.Pipeline{Workers: 2, Entries: 1000.5, Commits: 3, RatesKnown: true}
	f.mu.Unlock()
	s.want(event(8, `"lag":0,"rates":{"entries_per_second":1000.5,"commits_per_second":3}`))
	f.fail(fmt.Errorf("%w: secret", countmill.ErrUnavailable))
	if got := s.next(); !strings.HasPrefix(got, "event: problem\ndata: {\"type\":\"urn:countmill:problem:unavailable\"") || strings.Contains(got, "secret") {
		t.Errorf("a failed read sends %q, want a problem", got)
	}
	f.fail(nil)
	s.want(event(8, `"lag":0,"rates":{"entries_per_second":1000.5,"commits_per_second":3}`))
}

func TestWatchKeepsAlive(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.moving = true // which is no change to tell of
	srv, _ := start(t, f, query.Config{KeepAlive: 2 * time.Second})
	s := openStream(t, srv.URL+"/v1/watch?counter=a&interval=5s")
	s.next()
	for range 2 {
		began := time.Now()
		s.want(": keep-alive")
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s of silence, want at most 2s", took)
		}
	}
}

func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	srv, h := start(t, newFake(), query.Config{MaxWatchers: 2})
	first := openStream(t, srv.URL+"/v1/watch?counter=a&interval=100ms")
	openStream(t, srv.URL+"/v1/watch?counter=a").next()
	if status, got, header := call(t, "GET", srv.URL+"/v1/watch?counter=a", ""); status != 429 || header.Get("Retry-After") == "" {
		t.Errorf("the third watcher got %d %s, want 429 with Retry-After", status, got)
	}
	first.resp.Body.Close()
	await(t, "a place is given back", func() bool { return h.Watchers() == 1 })
	openStream(t, srv.URL+"/v1/watch?counter=a").next()
	if status, _, _ := call(t, "HEAD", srv.URL+"/v1/watch?counter=a", ""); status != 429 {
		t.Errorf("HEAD beyond the bound got %d, want 429", status)
	}
}

func TestWatchRefusedGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	f := newFake()
	srv, h := start(t, f, query.Config{MaxWatchers: 1})
	for range 3 {
		if status, _, _ := call(t, "HEAD", srv.URL+"/v1/watch?counter=a", ""); status != 200 {
			t.Errorf("HEAD got %d, want 200 and an end", status)
		}
		if status, _, _ := call(t, "GET", srv.URL+"/v1/watch?counter=", ""); status != 400 {
			t.Errorf("a bad name got %d, want 400", status)
		}
	}
	await(t, "places are given back", func() bool { return h.Watchers() == 0 })
}

func await(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within 10s", what)
		}
	}
}

// A server that shuts down must not wait for watchers.
func TestWatchEndsWithTheServer(t *testing.T) {
	t.Parallel()
	h, err := query.New(newFake(), query.Config{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Config.RegisterOnShutdown(h.Close)
	srv.Start()
	defer srv.Close()
	s := openStream(t, srv.URL+"/v1/watch?counter=a&interval=5s")
	s.next()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := srv.Config.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if got := s.next(); got != "" || s.scan.Err() != nil {
		t.Errorf("at the end: %q, %v; want a clean end", got, s.scan.Err())
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/v1/watch?counter=a", nil))
	if rec.Code != 503 {
		t.Errorf("a new watcher got %d, want 503", rec.Code)
	}
}

// A client that does not read is dropped.
func TestSlowWatcherIsDropped(t *testing.T) {
	t.Parallel()
	f := newFake()
	h, err := query.New(f, query.Config{WriteTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(4096)
		return ctx
	}
	srv.Start()
	defer srv.Close()
	defer h.Close()
	dialer := net.Dialer{}
	conn, err := dialer.DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn, "GET /v1/watch?interval=100ms%s HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("&counter="+strings.Repeat("x", 500), 100))
	await(t, "the watcher is there", func() bool { return h.Watchers() == 1 })
	n := int64(0)
	await(t, "the watcher is dropped", func() bool {
		n++
		f.set(strings.Repeat("x", 500), n)
		return h.Watchers() == 0
	})
}

// A writer without deadlines cannot be streamed to: a slow client would hold it for ever.
func TestWatchNeedsDeadlines(t *testing.T) {
	t.Parallel()
	h, err := query.New(newFake(), query.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/v1/watch?counter=a", nil))
	if rec.Code != 500 || rec.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %d %s, want a problem", rec.Code, rec.Header().Get("Content-Type"))
	}
}
