package api

import (
	"bufio"
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
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A publisherAPI is the API of a process with a sender alone.
type publisherAPI struct {
	*API
	http.Handler
}

func newIncrements(s Sender, cfg IncrementsConfig) publisherAPI {
	a := New(Services{Sender: s}, Config{Roles: []string{"publisher"}, Increments: cfg})
	rt := httpserver.NewRouter(nil)
	a.Register(rt)
	return publisherAPI{a, rt}
}

// A recorder is a Sender that keeps the increments that it gets.
type recorder struct {
	mu     sync.Mutex
	sent   []sent
	answer publisher.Sent
	err    error
	block  bool // until the context ends
}

type sent struct {
	Keyed          bool
	Principal, Key string
	At             time.Time
	Incs           []countmill.Increment
}

func (s *recorder) Publish(ctx context.Context, incs ...countmill.Increment) (publisher.Sent, error) {
	return s.answer, s.take(ctx, sent{Incs: incs})
}

func (s *recorder) PublishPast(ctx context.Context, at time.Time, principal, key string, incs ...countmill.Increment) (publisher.Sent, error) {
	return s.answer, s.take(ctx, sent{Keyed: key != "", Principal: principal, Key: key, At: at, Incs: incs})
}

func (s *recorder) PublishKeyed(ctx context.Context, principal, key string, incs ...countmill.Increment) (publisher.Sent, error) {
	return s.answer, s.take(ctx, sent{Keyed: true, Principal: principal, Key: key, Incs: incs})
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

// A good request; tests spoil it in one place.
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

func problemOf(tb testing.TB, resp *http.Response) httpserver.Problem {
	tb.Helper()
	var p httpserver.Problem
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, json.Unmarshal(text, &p)); err != nil {
		tb.Fatalf("answer %d is not a problem: %v", resp.StatusCode, err)
	}
	if resp.StatusCode != http.StatusMethodNotAllowed {
		apitest.Load(tb).CheckAnswer(tb, http.MethodPost, "/v1/increments", resp.StatusCode, resp.Header, text)
	}
	if got := resp.Header.Get("Content-Type"); got != "application/problem+json" || p.Status != resp.StatusCode {
		tb.Errorf("got Content-Type %q, status %d and %d", got, resp.StatusCode, p.Status)
	}
	return p
}

func TestAccepts(t *testing.T) {
	t.Parallel()
	past := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
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
		{"past", post(`{"counter":"a"}`).with(func(r *request) { r.query = "?at=2020-01-02T03:04:05Z" }), sent{At: past, Incs: one}},
		{"past, with a key", post(`{"counter":"a"}`, "Idempotency-Key", "k").with(func(r *request) { r.query = "?at=2020-01-02T05:04:05%2B02:00" }), sent{Keyed: true, Key: "k", At: past, Incs: one}},
		{"charset", post(`{"counter":"a"}`).with(func(r *request) { r.header.Set("Content-Type", "application/json; charset=utf-8") }), sent{Incs: one}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var s recorder
			resp := tc.req.do(newIncrements(&s, IncrementsConfig{}))
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

// The 202 has the receipt and, if the increments are counted already, the moment of a total that
// contains them.
func TestAcceptedComesWithAReceipt(t *testing.T) {
	t.Parallel()
	moment := func() time.Time { return time.Date(2026, 11, 21, 4, 4, 3, 120_000_000, time.UTC) }
	receipt := wire.Receipt{Time: time.UnixMicro(1_790_000_000_000_000), Spans: []wire.Span{{Flush: wire.FlushHash{1}}}}
	known := `{"accepted":1,"receipt":"` + receipt.String() + `"`
	for name, tc := range map[string]struct {
		sent   publisher.Sent
		moment func() time.Time
		want   string
	}{
		"counted":                  {publisher.Sent{Receipt: receipt, Counted: true}, moment, known + `,"counted_as_of":"2026-11-21T04:04:03.120000Z"}`},
		"not counted yet":          {publisher.Sent{Receipt: receipt}, moment, known + "}"},
		"a store without a moment": {publisher.Sent{Receipt: receipt, Counted: true}, nil, known + "}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newIncrements(&recorder{answer: tc.sent}, IncrementsConfig{})
			a.services.Moment = tc.moment
			resp := post(`{"counter":"a"}`).do(a)
			body, err := io.ReadAll(resp.Body)
			if got := strings.TrimSuffix(string(body), "\n"); err != nil || resp.StatusCode != 202 || got != tc.want {
				t.Errorf("got %d %s %v\nwant 202 %s", resp.StatusCode, got, err, tc.want)
			}
		})
	}
}

func TestSenderErrorsArePlaced(t *testing.T) {
	t.Parallel()
	one := 1
	s := recorder{err: fmt.Errorf("request: %w", &countmill.FieldError{Field: "id", Problem: "stands twice", Index: &one})}
	h := newIncrements(&s, IncrementsConfig{})
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
	if p := problemOf(t, post(two).do(newIncrements(&s, IncrementsConfig{}))); whereOf(p) != "" {
		t.Errorf("object: got %q, want no place", whereOf(p))
	}
	s = recorder{err: errors.Join(&countmill.FieldError{Field: "id", Index: &zero}, countmill.ErrOutcomeUnknown)}
	if p := problemOf(t, post(two).do(newIncrements(&s, IncrementsConfig{}))); p.Status != 504 {
		t.Errorf("maybe counted: got %d, want 504", p.Status)
	}
}

// A bus that does not answer in time leaves the outcome open.
func TestSlowSenderIs504(t *testing.T) {
	t.Parallel()
	s := recorder{block: true}
	resp := post(`{"counter":"a"}`).do(newIncrements(&s, IncrementsConfig{Timeout: time.Millisecond}))
	if p := problemOf(t, resp); p.Status != 504 || p.Type != "urn:countmill:problem:outcome-unknown" {
		t.Errorf("got %+v, want outcome-unknown", p)
	}
}

// The handler does not wait for the bus on behalf of a client that has gone.
func TestClientGoneEndsTheWait(t *testing.T) {
	t.Parallel()
	s := recorder{block: true}
	h := newIncrements(&s, IncrementsConfig{Timeout: time.Hour})
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
	case <-time.After(time.Minute): // of an hour
		t.Fatal("the handler still waits")
	}
}

// A body that stops half way counts nothing, whether the client closes or stalls.
func TestHalfABodyCountsNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		timeout time.Duration // of the body; who closes is answered long before it
		want    int
	}{"closes": {time.Hour, 400}, "stalls": {50 * time.Millisecond, 408}} {
		var s recorder
		srv := httptest.NewServer(newIncrements(&s, IncrementsConfig{BodyTimeout: tc.timeout}))
		t.Cleanup(srv.Close)
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		// The first part is complete JSON, so that only the length shows that more must come.
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
		if p := problemOf(t, resp); p.Status != tc.want {
			t.Errorf("client %s: got %d %s, want %d", name, p.Status, p.Detail, tc.want)
		}
		resp.Body.Close()
		if got := s.got(); len(got) != 0 {
			t.Errorf("client %s: the sender got %+v", name, got)
		}
	}
}

// Requests that wait for the bus count as pending: memory is bounded, and small
// requests still pass. A body that says of itself that it is too long is not read.
func TestPendingIsBounded(t *testing.T) {
	t.Parallel()
	s := recorder{block: true}
	const size = 100 << 10
	h := newIncrements(&s, IncrementsConfig{Timeout: time.Hour, MaxBody: size, MaxPending: 3*size + 20_000})
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	begin := func(body string) {
		before, answered := len(s.got()), make(chan struct{})
		waiting.Go(func() {
			defer close(answered)
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/increments", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.RemoteAddr = fmt.Sprint("connection ", before)
			h.ServeHTTP(httptest.NewRecorder(), r)
		})
		for len(s.got()) == before {
			select {
			case <-time.After(time.Millisecond):
			case <-answered:
				t.Fatalf("a body of %d bytes is not waited for", len(body))
			}
		}
	}
	defer cancel()
	for range 3 {
		begin(longBody(size))
	}
	for _, tc := range []struct {
		body   string
		length int64 // as it says of itself
		want   int
		read   bool
	}{
		{longBody(size), size, 429, false},
		{longBody(size), -1, 429, true},
		{longBody(size + 1), size + 1, 413, false},
		{longBody(size + 1), -1, 429, true},
	} {
		from := &toldReader{Reader: strings.NewReader(tc.body)}
		r, w := httptest.NewRequest("POST", "/v1/increments", from), httptest.NewRecorder()
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = tc.length
		if h.ServeHTTP(w, r); w.Code != tc.want || from.read != tc.read {
			t.Errorf("length %d, by its word %d: got %d, read: %v; want %d, %v", len(tc.body), tc.length, w.Code, from.read, tc.want, tc.read)
		}
	}
	begin(longBody(8_000)) // whose buffer still fits: it is the pooled one and 4 KiB
	cancel()
	waiting.Wait()
	if h.pools[bodiesSent].Used() != 0 {
		t.Errorf("%d bytes are still pending", h.pools[bodiesSent].Used())
	}
}

func TestBuffersAreNotShared(t *testing.T) {
	t.Parallel()
	var s recorder
	h := newIncrements(&s, IncrementsConfig{})
	var all sync.WaitGroup
	for i := range 500 {
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
