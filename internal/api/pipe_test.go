package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/wire"
)

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// A site is a server whose connections are in memory, so that it can be in a bubble: its
// time-outs, and what watchers wait for, take no time and come in one order.
type site struct {
	http.Server
	client  http.Transport
	dialled chan net.Conn
	closed  chan struct{}
	close   sync.Once
}

// open serves a handler until the test ends. Streams must outlive the server's time-outs.
func open(t *testing.T, h http.Handler) *site {
	t.Helper()
	s := &site{dialled: make(chan net.Conn), closed: make(chan struct{})}
	s.Handler, s.ReadTimeout, s.WriteTimeout = h, time.Second, time.Second
	s.client.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) }
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener{s}) }()
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		_ = s.Server.Close()
		<-ended
	})
	return s
}

// watched is a site of a reader's totals.
func watched(t *testing.T, f api.Reader, cfg api.Config) (*site, *fakeAPI) {
	t.Helper()
	h := serve(api.Services{Reader: f}, cfg)
	t.Cleanup(h.CloseStreams)
	return open(t, h), h
}

func (s *site) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case s.dialled <- theirs:
		return ours, nil
	case <-s.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// get sends a request and leaves the body to the caller.
func (s *site) get(t *testing.T, method, path string, header ...string) *http.Response {
	t.Helper()
	return s.send(t, method, path, nil, header...)
}

func (s *site) send(t *testing.T, method, path string, body io.Reader, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://site"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// call returns the status and the body of an answer, and checks it by the OpenAPI document.
func (s *site) call(t *testing.T, method, path string) (int, string, http.Header) {
	t.Helper()
	resp := s.get(t, method, path)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, resp.Request, resp.StatusCode, resp.Header, text)
	return resp.StatusCode, strings.TrimSuffix(string(text), "\n"), resp.Header
}

// listener is a site's net.Listener.
type listener struct{ s *site }

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.s.dialled:
		return c, nil
	case <-l.s.closed:
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error {
	l.s.close.Do(func() { close(l.s.closed) })
	return nil
}

func (l listener) Addr() net.Addr { return &net.UnixAddr{Name: "site", Net: "unix"} }

// Clients that do not read their large answers keep nobody else from getting theirs, and lose their
// connections.
func TestAnswersForThoseWhoReadThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := ones("a")
		n.series = reader.Series{Rows: make([]reader.Row, 1000)}
		for i := range 1000 {
			n.series.Rows[i].Counter = fmt.Sprintf("page:%0490d", i)
			n.counters[n.series.Rows[i].Counter] = 1
		}
		s, _ := watched(t, n, api.Config{})
		s.WriteTimeout = time.Hour
		var unread []*http.Response
		for range 20 {
			for _, path := range []string{"/metrics/counters?match=page:*", "/v1/series?counter=a", "/v1/counters?limit=1000"} {
				unread = append(unread, s.get(t, "GET", path))
			}
		}
		if status, text, _ := s.call(t, "GET", "/metrics/counters?match=a"); status != 200 || !strings.Contains(text, `{counter="a"} 1`) {
			t.Errorf("beside clients that do not read: got %d %s", status, text)
		}
		time.Sleep(10 * time.Second)
		for _, resp := range unread {
			if _, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || err == nil {
				t.Errorf("a client that did not read for 10s got %d and its whole answer (%v)", resp.StatusCode, err)
			}
		}
	})
}

// An answer may take longer than the server's own limit if its route says so.
func TestLongAnswersOutliveTheServersLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, serve(api.Services{Recounter: slowRecounter{}, Backup: func(context.Context, string) (b client.Backup, err error) {
			time.Sleep(9 * time.Minute)
			return b, nil
		}}, api.Config{}))
		for _, path := range []string{"/v1/recount", "/v1/backup"} {
			resp := s.send(t, "POST", path, strings.NewReader("{}"), "Content-Type", jsonType)
			if _, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
				t.Errorf("%s: got %d, %v", path, resp.StatusCode, err)
			}
		}
	})
}

// A slowRecounter takes most of an hour.
type slowRecounter struct{}

func (slowRecounter) Recount(context.Context, recount.Query) (r recount.Result, err error) {
	time.Sleep(59 * time.Minute)
	return r, nil
}

// Answers that clients do not read are refused to others when they take much memory, until they are given up.
func TestUnreadAnswersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := ones()
		for i := range api.MaxMetrics {
			n.counters[fmt.Sprintf("page:%0490d", i)] = 1
		}
		s, _ := watched(t, n, api.Config{})
		s.WriteTimeout = time.Hour
		for path, times := range map[string]int{fmt.Sprintf("/metrics/counters?match=page:*&limit=%d", api.MaxMetrics): 20, "/v1/counters?limit=1000": 150} {
			refused := 0
			for range times {
				if resp := s.get(t, "GET", path); resp.StatusCode == 429 {
					refused++
				}
			}
			if refused == 0 || refused == times {
				t.Errorf("%s: %d of %d answers were refused, want those that do not fit 64 MiB", path, refused, times)
			}
			time.Sleep(time.Minute)
			if status, _, _ := s.call(t, "GET", path); status != 200 {
				t.Errorf("after clients that did not read were given up: got %d, want 200", status)
			}
		}
	})
}

// A body of increments counts until its answer is read: conflicts are as large. A client that does not read them soon loses its connection.
func TestBodiesCountUntilTheirAnswersAreRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		time.Sleep(time.Until(clock.Earliest)) // a bubble begins in the year 2000
		b := wire.Batch{Time: time.Now()}
		for i := range 120 {
			b.Parts = append(b.Parts, wire.Part{ID: wire.PartID{0x10, byte(i)}, Entries: []wire.Entry{{Counter: fmt.Sprintf("%0500d", i), Delta: 1}}})
		}
		conflicts := make([]countmill.Conflict, 2000)
		s := open(t, serve(api.Services{
			Sender: failing{err: &countmill.ConflictsError{Conflicts: conflicts}}, BatchReceiver: refusing{Reused: make([]int, len(conflicts))},
		}, api.Config{Increments: api.IncrementsConfig{MaxBody: 64 << 10, MaxPending: 1}})) // one body fits
		s.WriteTimeout = time.Hour
		for _, to := range []struct {
			path, kind, body string
			status           int
		}{
			{"/v1/increments", jsonType, `{"counter":"a"}` + strings.Repeat(" ", 60_000), 422},
			{"/v1/batches", "application/vnd.countmill.batch", string(wire.Append(nil, &b)), 202},
		} {
			post := func() *http.Response {
				return s.send(t, "POST", to.path, strings.NewReader(to.body), "Content-Type", to.kind)
			}
			unread := post()
			if got := post().StatusCode; unread.StatusCode != to.status || got != 429 {
				t.Errorf("%s: got %d, and beside that answer %d, want %d and 429", to.path, unread.StatusCode, got, to.status)
			}
			time.Sleep(10 * time.Second)
			if _, err := io.ReadAll(unread.Body); err == nil {
				t.Errorf("%s: a client that did not read for 10s got its whole answer", to.path)
			}
			again := post()
			if _, err := io.ReadAll(again.Body); again.StatusCode != to.status || err != nil {
				t.Errorf("%s: after that: got %d, %v, want %d", to.path, again.StatusCode, err, to.status)
			}
		}
	})
}

// refusing counts no part of a batch.
type refusing publisher.Outcome

func (r refusing) Send(context.Context, *publisher.Delivery, time.Time) (publisher.Outcome, error) {
	return publisher.Outcome(r), nil
}

// Each counter is read once, however often and by whatever prefixes it is asked for.
func TestMetricsReadCoveredPrefixesOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := ones("page:/a", "page:/b", "shop:a")
		s, _ := watched(t, n, api.Config{})
		path := "/metrics/counters?match=shop:*&match=page:/a*"
		for range 90 {
			path += "&match=page:*"
		}
		if status, text, _ := s.call(t, "GET", path); status != 200 || strings.Count(text, "countmill_value{") != 3 {
			t.Errorf("got %d %s", status, text)
		}
		if n.lists != 2 {
			t.Errorf("%d lists, want one for each of 2 prefixes", n.lists)
		}
	})
}
