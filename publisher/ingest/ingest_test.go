package ingest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A recorder is a Sender that keeps what it gets.
type recorder struct {
	mu    sync.Mutex
	sent  []sent
	err   error
	block bool // until the context ends
}

type sent struct {
	Keyed          bool
	Principal, Key string
	Incs           []countmill.Increment
}

func (s *recorder) Publish(ctx context.Context, incs ...countmill.Increment) error {
	return s.take(ctx, sent{Incs: incs})
}

func (s *recorder) PublishKeyed(ctx context.Context, principal, key string, incs ...countmill.Increment) error {
	return s.take(ctx, sent{Keyed: true, Principal: principal, Key: key, Incs: incs})
}

func (s *recorder) take(ctx context.Context, got sent) error {
	s.mu.Lock()
	s.sent = append(s.sent, got)
	err := s.err
	s.mu.Unlock()
	if s.block {
		<-ctx.Done()
		return fmt.Errorf("waiting for the bus: %w", ctx.Err())
	}
	return err
}

func (s *recorder) got() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// A request that is good as it stands; tests spoil it in one place.
type request struct {
	method, query, body string
	header              http.Header
}

func post(body string, header ...string) request {
	r := request{method: "POST", body: body, header: http.Header{"Content-Type": {"application/json"}}}
	for i := 0; i < len(header); i += 2 {
		r.header[header[i]] = append(r.header[header[i]], header[i+1])
	}
	return r
}

func lines(body string, header ...string) request {
	r := post(body, header...)
	r.header.Set("Content-Type", "application/x-ndjson")
	return r
}

func (r request) with(change func(*request)) request {
	change(&r)
	return r
}

func (r request) do(h http.Handler) *http.Response {
	req := httptest.NewRequest(r.method, "/v1/increments"+r.query, strings.NewReader(r.body))
	req.Header = r.header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Result()
}

func problemOf(tb testing.TB, resp *http.Response) api.Problem {
	tb.Helper()
	var p api.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		tb.Fatalf("answer %d is not a problem: %v", resp.StatusCode, err)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/problem+json" || p.Status != resp.StatusCode {
		tb.Errorf("got Content-Type %q, status %d and %d", got, resp.StatusCode, p.Status)
	}
	return p
}

func TestAccepts(t *testing.T) {
	t.Parallel()
	one := []countmill.Increment{{Counter: "a", Delta: 1}}
	two := []countmill.Increment{{Counter: "a//b", Delta: -2, ID: "x"}, {Counter: "a//b", Delta: 1}}
	for _, tc := range []struct {
		name string
		req  request
		want sent
	}{
		{"object", post(`{"counter":"a"}`), sent{Incs: one}},
		{"array", post(`[{"counter":"a//b","delta":-2,"id":"x"},{"counter":"a//b"}]`), sent{Incs: two}},
		{"lines", lines("{\"counter\":\"a//b\",\"delta\":-2,\"id\":\"x\"}\n{\"counter\":\"a//b\"}\n"), sent{Incs: two}},
		{"key", post(`{"counter":"a"}`, "Idempotency-Key", "k-1"), sent{Keyed: true, Key: "k-1", Incs: one}},
		{"quoted key", lines(`{"counter":"a"}`, "Idempotency-Key", `"k-1"`), sent{Keyed: true, Key: `"k-1"`, Incs: one}},
		{"longest key", post(`{"counter":"a"}`, "Idempotency-Key", strings.Repeat("k", 128)), sent{Keyed: true, Key: strings.Repeat("k", 128), Incs: one}},
		{"charset", post(`{"counter":"a"}`).with(func(r *request) { r.header.Set("Content-Type", "application/json; charset=utf-8") }), sent{Incs: one}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var s recorder
			resp := tc.req.do(New(&s, Config{}))
			body, err := io.ReadAll(resp.Body)
			if want := fmt.Sprintf("{\"accepted\":%d}\n", len(tc.want.Incs)); err != nil || resp.StatusCode != 202 || string(body) != want {
				t.Errorf("got %d %q, want 202 %q", resp.StatusCode, body, want)
			}
			if got := resp.Header.Get("Content-Type"); got != "application/json" {
				t.Errorf("got Content-Type %q, want application/json", got)
			}
			if diff := cmp.Diff([]sent{tc.want}, s.got()); diff != "" {
				t.Errorf("sender got something else (-want +got):\n%s", diff)
			}
		})
	}
}

// longBody is a good body of n bytes.
func longBody(n int) string {
	const frame = `{"counter":"a"}`
	return frame + strings.Repeat(" ", n-len(frame))
}

// Every row is a request that must be refused, and the same request mended in that one
// place, which must be accepted: so it is the named defect that is refused.
func TestRefuses(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	at := func(d time.Duration) string {
		return `{"counter":"a","time":"` + now.Add(d).Format(time.RFC3339) + `"}`
	}
	counter := func(name string) request { return post(`{"counter":"` + name + `"}`) }
	delta := func(literal string) request { return post(`{"counter":"a","delta":` + literal + `}`) }
	contentType := func(values ...string) request {
		return post(`{"counter":"a"}`).with(func(r *request) {
			delete(r.header, "Content-Type")
			if len(values) > 0 {
				r.header["Content-Type"] = values
			}
		})
	}
	name501, id129 := strings.Repeat("n", 501), strings.Repeat("i", 129)
	good := `{"counter":"a"}`
	const deltas, types = "-9007199254740991 to 9007199254740991", "application/json, application/x-ndjson"
	for _, tc := range []struct {
		name        string
		req, mended request
		status      int
		field       string
		limit       string // part of it
		where       string // "index 1", "line 2" or nothing
	}{
		{"empty name", counter(""), counter("a"), 400, "counter", "1 to 500 bytes", ""},
		{"long name", counter(name501), counter(name501[1:]), 400, "counter", "1 to 500 bytes", ""},
		{"name not UTF-8", counter("a\xff"), counter("aÿ"), 400, "counter", "valid UTF-8", ""},
		{"control character", counter(`a\n`), counter(`a\\n`), 400, "counter", "no control characters", ""},
		{"control character 0x7f", counter("a\u007f"), counter("a~"), 400, "counter", "no control characters", ""},
		{"leading space", counter(" a"), counter("a"), 400, "counter", "no leading or trailing space", ""},
		{"trailing space", counter("a "), counter("a"), 400, "counter", "no leading or trailing space", ""},
		{"reserved name", counter("__x__"), counter("__x_"), 400, "counter", "not __x__", ""},
		{"lone surrogate", counter(`\ud800`), counter(`\ud83d\ude00`), 400, "counter", "valid UTF-8", ""},
		{"no counter", post(`{"delta":1}`), post(`{"delta":1,"counter":"a"}`), 400, "counter", "1 to 500 bytes", ""},
		{"null counter", post(`{"counter":null}`), counter("null"), 400, "counter", "a string", ""},
		{"delta 0", delta("0"), delta("1"), 400, "delta", "not 0", ""},
		{"delta 1.5", delta("1.5"), delta("15"), 400, "delta", "an integer", ""},
		{"delta 1e3", delta("1e3"), delta("1000"), 400, "delta", "an integer", ""},
		{`delta "3"`, delta(`"3"`), delta("3"), 400, "delta", "an integer", ""},
		{"delta NaN", delta("NaN"), delta("1"), 400, "delta", "an integer", ""},
		{"delta null", delta("null"), delta("1"), 400, "delta", "an integer", ""},
		{"delta over the limit", delta("9007199254740992"), delta("9007199254740991"), 400, "delta", deltas, ""},
		{"delta under the limit", delta("-9007199254740992"), delta("-9007199254740991"), 400, "delta", deltas, ""},
		{"delta over int64", delta("9223372036854775808"), delta("1"), 400, "delta", deltas, ""},
		{"unknown field", post(`{"counter":"a","x":1}`), post(good), 400, "x", "counter, delta, id, time", ""},
		{"duplicate field", post(`{"counter":"a","counter":"b"}`), post(good), 400, "counter", "each field once", ""},
		{"differently-cased field", post(`{"counter":"a","Delta":1}`), delta("1"), 400, "Delta", "counter, delta, id, time", ""},
		{"bad time", post(`{"counter":"a","time":"now"}`), post(at(0)), 400, "time", "RFC 3339", ""},
		{"time beyond the horizon", post(at(-8*24*time.Hour - time.Minute)), post(at(-8*24*time.Hour + time.Minute)), 400, "time", "at most 192h0m0s ago", ""},
		{"time ahead", post(at(6 * time.Minute)), post(at(4 * time.Minute)), 400, "time", "at most 5m0s ahead", ""},
		{"long id", post(`{"counter":"a","id":"` + id129 + `"}`), post(`{"counter":"a","id":"` + id129[1:] + `"}`), 400, "id", "1 to 128 bytes", ""},
		{"empty id", post(`{"counter":"a","id":""}`), post(good), 400, "id", "1 to 128 bytes", ""},

		{"in an array", post(`[` + good + `,{"counter":"a","delta":0}]`), post(`[` + good + `]`), 400, "delta", "not 0", "index 1"},
		{"in lines", lines(good + "\n" + `{"counter":"a","delta":0}`), lines(good), 400, "delta", "not 0", "line 2"},
		{"truncated", post(good[:12]), post(good), 400, "body", "complete JSON", ""},
		{"truncated array", post(`[` + good), post(`[` + good + `]`), 400, "body", "complete JSON", "index 1"},
		{"truncated lines", lines(good + "\n" + good[:12]), lines(good + "\n" + good), 400, "body", "complete JSON", "line 2"},
		{"blank line", lines(good + "\n\n" + good), lines(good + "\n" + good + "\n\n"), 400, "body", "one object per line", "line 2"},
		{"two objects", post(good + good), post(good), 400, "body", "one object or one array", ""},
		{"two objects on a line", lines(good + good), lines(good), 400, "body", "one object per line", "line 1"},
		{"lines as JSON", post(good + "\n" + good), lines(good + "\n" + good), 400, "body", "application/x-ndjson", ""},
		{"array as lines", lines(`[` + good + `]`), post(`[` + good + `]`), 400, "increment", "an object", "line 1"},
		{"empty body", post(""), post(good), 400, "body", "at least one increment", ""},
		{"empty array", post("[]"), post(`[` + good + `]`), 400, "body", "at least one increment", ""},
		{"empty lines", lines("\n"), lines(good + "\n"), 400, "body", "at least one increment", ""},
		{"body over 8 MiB", post(longBody(8<<20 + 1)), post(longBody(8 << 20)), 413, "body", "8388608 bytes", ""},

		{"no content type", contentType(), contentType("application/json"), 415, "Content-Type", types, ""},
		{"curl's form", contentType("application/x-www-form-urlencoded"), contentType("application/json"), 415, "Content-Type", types, ""},
		{"wrong content type", contentType("text/json"), contentType("application/json"), 415, "Content-Type", types, ""},
		{"two content types", contentType("application/json", "application/json"), contentType("application/json"), 415, "Content-Type", types, ""},
		{"another charset", contentType("application/json; charset=latin1"), contentType("application/json; charset=utf-8"), 415, "Content-Type", "utf-8", ""},
		{"compressed", post(good, "Content-Encoding", "gzip"), post(good, "Content-Encoding", "identity"), 415, "Content-Encoding", "identity", ""},
		{"unknown parameter", post(good).with(func(r *request) { r.query = "?delta=1" }), post(good), 400, "delta", "no parameters", ""},
		{"wrong method", post(good).with(func(r *request) { r.method = "PUT" }), post(good), 405, "", "", ""},

		{"empty key", post(good, "Idempotency-Key", ""), post(good), 400, "Idempotency-Key", "1 to 128 bytes", ""},
		{"long key", post(good, "Idempotency-Key", id129), post(good, "Idempotency-Key", id129[1:]), 400, "Idempotency-Key", "1 to 128 bytes", ""},
		{"key not UTF-8", post(good, "Idempotency-Key", "\xff"), post(good, "Idempotency-Key", "ÿ"), 400, "Idempotency-Key", "valid UTF-8", ""},
		{"key with a tab", post(good, "Idempotency-Key", "a\tb"), post(good, "Idempotency-Key", "a b"), 400, "Idempotency-Key", "no control characters", ""},
		{"two keys", post(good, "Idempotency-Key", "a", "Idempotency-Key", "a"), post(good, "Idempotency-Key", "a"), 400, "Idempotency-Key", "once", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var s recorder
			h := New(&s, Config{})
			resp := tc.req.do(h)
			p := problemOf(t, resp)
			if p.Status != tc.status || p.Field != tc.field || !strings.Contains(p.Limit, tc.limit) || whereOf(p) != tc.where {
				t.Errorf("got %d, field %q, limit %q, %q; want %d, %q, %q, %q",
					p.Status, p.Field, p.Limit, whereOf(p), tc.status, tc.field, tc.limit, tc.where)
			}
			if p.Detail == "" || len(p.Detail) > 400 {
				t.Errorf("got detail %q", p.Detail)
			}
			if got := s.got(); len(got) != 0 {
				t.Errorf("the sender got %+v of a refused request", got)
			}
			if resp := tc.mended.do(h); resp.StatusCode != 202 || len(s.got()) != 1 {
				t.Errorf("mended request: got %d, want 202", resp.StatusCode)
			}
			if got := h.pending.Load(); got != 0 {
				t.Errorf("%d bytes are still pending", got)
			}
		})
	}
}

func whereOf(p api.Problem) string {
	var where []string
	if p.Index != nil {
		where = append(where, fmt.Sprint("index ", *p.Index))
	}
	if p.Line != nil {
		where = append(where, fmt.Sprint("line ", *p.Line))
	}
	return strings.Join(where, " ")
}

func TestSenderErrorsAreAnswered(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err        error
		status     int
		word       string
		retryAfter bool
	}{
		{countmill.ErrInvalid, 400, "invalid", false},
		{countmill.ErrConflict, 422, "id-reused", false},
		{countmill.ErrOverloaded, 429, "overloaded", true},
		{countmill.ErrUnavailable, 503, "unavailable", true},
		{countmill.ErrClosed, 503, "closed", true},
		{countmill.ErrOutcomeUnknown, 504, "outcome-unknown", false},
		{errors.New("surprise"), 500, "internal", false},
	} {
		s := recorder{err: fmt.Errorf("sending: %w", tc.err)}
		resp := post(`{"counter":"a"}`).do(New(&s, Config{}))
		p := problemOf(t, resp)
		if p.Status != tc.status || p.Type != "urn:countmill:problem:"+tc.word || (resp.Header.Get("Retry-After") != "") != tc.retryAfter {
			t.Errorf("%v: got %d %s, Retry-After %q; want %d %s", tc.err, p.Status, p.Type, resp.Header.Get("Retry-After"), tc.status, tc.word)
		}
	}
}

func TestSenderErrorsArePlaced(t *testing.T) {
	t.Parallel()
	one := 1
	s := recorder{err: fmt.Errorf("request: %w", &countmill.FieldError{Field: "id", Problem: "stands twice", Index: &one})}
	h := New(&s, Config{})
	two := `{"counter":"a"}`
	if p := problemOf(t, post(`[`+two+`,`+two+`]`).do(h)); whereOf(p) != "index 1" {
		t.Errorf("array: got %q, want index 1", whereOf(p))
	}
	if p := problemOf(t, lines(two+"\n"+two).do(h)); whereOf(p) != "line 2" || !strings.Contains(p.Detail, "line 2") {
		t.Errorf("lines: got %q, want line 2", whereOf(p))
	}
	if one != 1 {
		t.Error("the sender's error was changed")
	}
	zero := 0
	s = recorder{err: &countmill.FieldError{Field: "delta", Problem: "is bad", Index: &zero}}
	if p := problemOf(t, post(two).do(New(&s, Config{}))); whereOf(p) != "" {
		t.Errorf("object: got %q, want no place", whereOf(p))
	}
}

// A bus that does not answer in time leaves the outcome open.
func TestSlowSenderIs504(t *testing.T) {
	t.Parallel()
	s := recorder{block: true}
	resp := post(`{"counter":"a"}`).do(New(&s, Config{Timeout: time.Millisecond}))
	if p := problemOf(t, resp); p.Status != 504 || p.Type != "urn:countmill:problem:outcome-unknown" {
		t.Errorf("got %+v, want outcome-unknown", p)
	}
}

// The handler does not wait for the bus on behalf of a client that has gone.
func TestClientGoneEndsTheWait(t *testing.T) {
	t.Parallel()
	s := recorder{block: true}
	h := New(&s, Config{Timeout: time.Hour})
	done := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "POST /v1/increments HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"+`{"counter":"a"}`)
	for len(s.got()) == 0 {
		<-time.After(time.Millisecond)
	}
	conn.Close()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the handler still waits")
	}
}

// A body that stops half way counts nothing, whether the client closes or stalls.
func TestHalfABodyCountsNothing(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"closes": 400, "stalls": 408} {
		var s recorder
		srv := httptest.NewServer(New(&s, Config{BodyTimeout: 50 * time.Millisecond}))
		t.Cleanup(srv.Close)
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		// What has come is complete JSON, so that only the length tells.
		fmt.Fprint(conn, "POST /v1/increments HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: 100\r\n\r\n"+`{"counter":"a"}`+"\n")
		if name == "closes" {
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if p := problemOf(t, resp); p.Status != want {
			t.Errorf("client %s: got %d %s, want %d", name, p.Status, p.Detail, want)
		}
		resp.Body.Close()
		if got := s.got(); len(got) != 0 {
			t.Errorf("client %s: the sender got %+v", name, got)
		}
	}
}

// Requests that wait for the bus count as pending: memory is bounded, and small
// requests still pass.
func TestPendingIsBounded(t *testing.T) {
	t.Parallel()
	s := recorder{block: true}
	const size = 100 << 10
	h := New(&s, Config{Timeout: time.Hour, MaxBody: size, MaxPending: 3 * size})
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	begin := func(body string) {
		before := len(s.got())
		waiting.Go(func() {
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/increments", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(httptest.NewRecorder(), r)
		})
		for len(s.got()) == before {
			<-time.After(time.Millisecond)
		}
	}
	for range 3 {
		begin(longBody(size))
	}
	p := problemOf(t, post(longBody(size)).do(h))
	if p.Status != 429 {
		t.Errorf("got %d %s, want 429", p.Status, p.Detail)
	}
	begin(`{"counter":"a"}`)
	cancel()
	waiting.Wait()
	if got := h.pending.Load(); got != 0 {
		t.Errorf("%d bytes are still pending", got)
	}
}

func TestBuffersAreNotShared(t *testing.T) {
	t.Parallel()
	var s recorder
	h := New(&s, Config{})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			body := fmt.Sprintf(`{"counter":"counter-%d","delta":%d}`, i, i+1)
			if resp := post(body).do(h); resp.StatusCode != 202 {
				t.Errorf("got %d, want 202", resp.StatusCode)
			}
		})
	}
	all.Wait()
	for _, got := range s.got() {
		if inc := got.Incs[0]; inc.Counter != fmt.Sprintf("counter-%d", inc.Delta-1) {
			t.Errorf("got %+v: names and deltas are mixed up", inc)
		}
	}
}

// nobody is a ResponseWriter that costs nothing, as net/http's own is outside of the
// measurement.
type nobody struct{ header http.Header }

func (w *nobody) Header() http.Header               { return w.header }
func (w *nobody) Write(p []byte) (int, error)       { return len(p), nil }
func (w *nobody) WriteHeader(int)                   {}
func (w *nobody) SetReadDeadline(t time.Time) error { return nil }

type discard struct{}

func (discard) Publish(context.Context, ...countmill.Increment) error { return nil }
func (discard) PublishKeyed(context.Context, string, string, ...countmill.Increment) error {
	return nil
}

func BenchmarkPost(b *testing.B) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
		io.WriteString(w, "{\"accepted\":1}\n")
	})
	for _, bc := range []struct {
		name string
		h    http.Handler
	}{{"bare", bare}, {"ingest", New(discard{}, Config{})}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			text := []byte(`{"counter":"page:/home","delta":3}`)
			body := bytes.NewReader(text)
			r := httptest.NewRequest("POST", "/v1/increments", body)
			r.Header.Set("Content-Type", "application/json")
			w := &nobody{make(http.Header)}
			for b.Loop() {
				body.Reset(text)
				r.Body = io.NopCloser(body)
				bc.h.ServeHTTP(w, r)
			}
		})
	}
}

func BenchmarkPostOverLoopback(b *testing.B) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	})
	for _, bc := range []struct {
		name string
		h    http.Handler
	}{{"bare", bare}, {"ingest", New(discard{}, Config{})}} {
		b.Run(bc.name, func(b *testing.B) {
			srv := httptest.NewServer(bc.h)
			defer srv.Close()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			text := []byte("POST /v1/increments HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 34\r\n\r\n" + `{"counter":"page:/home","delta":3}`)
			for b.Loop() {
				conn.Write(text)
				resp, err := http.ReadResponse(in, nil)
				if err != nil || resp.StatusCode != 202 {
					b.Fatal(resp, err)
				}
				io.Copy(io.Discard, resp.Body)
			}
		})
	}
}
