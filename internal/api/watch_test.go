package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

// A stream reads the answer to a watcher, a block at a time.
type stream struct {
	tb   testing.TB
	resp *http.Response
	scan *bufio.Scanner
}

// watch opens a stream, which ends after an hour: a test that waits in vain ends too.
func (s *site) watch(t *testing.T, path string) *stream {
	t.Helper()
	resp := s.get(t, "GET", path)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("watch answers %d %s, want 200 text/event-stream", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	end := time.AfterFunc(time.Hour, func() { resp.Body.Close() })
	t.Cleanup(func() { end.Stop() })
	return &stream{t, resp, bufio.NewScanner(resp.Body)}
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

// check compares an event with the OpenAPI document.
func (s *stream) check(lines []string) {
	s.tb.Helper()
	if len(lines) == 1 && strings.HasPrefix(lines[0], ":") {
		return
	}
	schema := map[string]string{"event: totals": "WatchEvent", "event: problem": "Problem", "event: top": "Top", "event: rank": "Rank"}[lines[0]]
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
	bubble(t, func(t *testing.T) {
		f := newFake()
		srv, _ := watched(t, f, api.Config{WriteTimeout: time.Second})
		s := srv.watch(t, "/v1/watch?counter=a&counter=a/b&interval=100ms")
		event := func(totals, rest string) string {
			return "event: totals\ndata: {\"totals\":[" + totals + "]," + rest + "}"
		}
		s.want(event(`{"counter":"a","total":7,`+tail+`,{"counter":"a/b","total":4,`+tail, `"lag":0.1205,"pipeline":null`))
		f.set("b", 99)                      // not watched
		time.Sleep(1200 * time.Millisecond) // beyond all time-outs for one write
		f.set("a", 8)
		s.want(event(`{"counter":"a","total":8,`+tail, `"lag":0.1205,"pipeline":null`))
		f.change(func() { f.pipeline = reader.Pipeline{Workers: 2, Entries: 1000.5, Commits: 3, RatesKnown: true} })
		s.want(event("", `"lag":0,"pipeline":{"entries_per_second":1000.5,"commits_per_second":3}`))
		f.fail(fmt.Errorf("%w: secret", countmill.ErrUnavailable))
		if got := s.next(); !strings.HasPrefix(got, "event: problem\ndata: {\"type\":\"urn:countmill:problem:unavailable\"") || strings.Contains(got, "secret") {
			t.Errorf("a failed read sends %q, want a problem", got)
		}
		f.set("a/b", 5)
		f.fail(nil)
		s.want(event(`{"counter":"a/b","total":5,`+tail, `"lag":0,"pipeline":{"entries_per_second":1000.5,"commits_per_second":3}`))
		f.fail(fmt.Errorf("%w: again", countmill.ErrUnavailable))
		s.next()
		f.fail(nil) // an event without totals says that reads work again
		s.want(event("", `"lag":0,"pipeline":{"entries_per_second":1000.5,"commits_per_second":3}`))
	})
}

func TestWatchKeepsAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.live = true // which is not a change to report
		srv, _ := watched(t, f, api.Config{KeepAlive: 2 * time.Second})
		s := srv.watch(t, "/v1/watch?counter=a&interval=5s")
		s.next()
		for range 5 {
			began := time.Now()
			s.want(": keep-alive")
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%s of silence, want at most 2s", took)
			}
		}
	})
}

// A server that shuts down must not wait for watchers. Their streams have no problem event for a read that it cancels.
func TestWatchEndsWithTheServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		f.hangs = true
		srv, h := watched(t, f, api.Config{})
		srv.RegisterOnShutdown(h.CloseStreams)
		s := srv.watch(t, "/v1/watch?counter=a&interval=1s")
		s.next()
		time.Sleep(2 * time.Second) // the second read is under way
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		rest := make(chan string)
		go func() { rest <- s.next() }()
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if got := <-rest; got != "" || s.scan.Err() != nil {
			t.Errorf("at the end: %q, %v; want a clean end", got, s.scan.Err())
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", "/v1/watch?counter=a", nil))
		if rec.Code != 503 {
			t.Errorf("a new watcher got %d, want 503", rec.Code)
		}
	})
}

// A writer without deadlines cannot be streamed to: a slow client would hold it for ever.
func TestWatchNeedsDeadlines(t *testing.T) {
	t.Parallel()
	ask(t, api.Services{Reader: newFake()}, api.Config{}).want(t, "GET", "/v1/watch?counter=a", "", 500, ":internal")
}

// A stream does not outlive its token.
func TestWatchEndsWithItsToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path, secrets := authtest.File(t, auth.Token{Name: "x", Scopes: []auth.Scope{auth.Read}})
		tokens, err := auth.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		h := serve(api.Services{Reader: newFake()}, api.Config{})
		t.Cleanup(h.CloseStreams)
		rt := httpserver.NewRouter(nil)
		rt.Guard(tokens, &httpserver.Refusals{})
		h.Register(rt)
		res := open(t, rt).get(t, "GET", "/v1/watch?counter=a&interval=5s", "Authorization", "Bearer "+secrets[0])
		first := make([]byte, 13)
		if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "event: totals" {
			t.Fatalf("got %q, %v", first, err)
		}
		authtest.Write(t, path, auth.Token{Name: "x", Scopes: []auth.Scope{auth.Read}})
		tokens.Reload(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := io.Copy(io.Discard, res.Body); ended <- err }()
		select {
		case <-ended:
		case <-time.After(2500 * time.Millisecond):
			t.Error("the stream of a token that was taken away goes on")
			res.Body.Close()
			<-ended
		}
	})
}
