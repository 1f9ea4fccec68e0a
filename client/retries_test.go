package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
)

// A retryRow is one of docs/reference/retries.md.
type retryRow struct {
	answer, counted string
	repeated        bool
	want            error
}

var sentinels = map[string]error{
	"": nil, "ErrInvalid": countmill.ErrInvalid, "ErrDenied": client.ErrDenied, "ErrNotFound": client.ErrNotFound,
	"ErrConflict": countmill.ErrConflict, "ErrIDsReused": countmill.ErrIDsReused, "ErrOverloaded": countmill.ErrOverloaded,
	"ErrOutcomeUnknown": countmill.ErrOutcomeUnknown, "ErrOverflow": countmill.ErrOverflow, "ErrUnavailable": countmill.ErrUnavailable,
}

func retryRows(t *testing.T) (rows []retryRow) {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/retries.md")
	must(t, err)
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \| (yes|no) \| (\w+) \|(.*?)\|.*\|$`).FindAllStringSubmatch(string(text), -1) {
		name := strings.Trim(row[4], " `")
		want, ok := sentinels[name]
		if !ok {
			t.Errorf("%s: there is no %s", row[1], name)
		}
		rows = append(rows, retryRow{row[1], row[3], row[2] == "yes", want})
	}
	if len(rows) < 20 {
		t.Fatalf("the table has %d rows, want 20 or more", len(rows))
	}
	return rows
}

// step is the server's side of a row.
func (r retryRow) step(t *testing.T) func(http.ResponseWriter) {
	if r.answer == "a connection that breaks" {
		return cut
	}
	status, kind, _ := strings.Cut(strings.ReplaceAll(r.answer, "`", ""), " ")
	n, err := strconv.Atoi(status)
	if err != nil {
		t.Fatalf("%q is no answer", r.answer)
	}
	if kind == "from another program" {
		return foreign(n)
	}
	return answer(n, kind)
}

// foreign is the answer of a proxy, which may have problems of its own.
func foreign(status int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"type":"urn:proxy:problem:unavailable","detail":"no upstream","status":503}`)
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	for _, row := range retryRows(t) {
		t.Run(row.answer, func(t *testing.T) {
			t.Parallel()
			if row.answer == "no connection" {
				row.connectsLate(t)
				return
			}
			row.isRepeated(t)
			row.isReported(t)
		})
	}
}

// isRepeated: two such answers and then a good one are a success if the row says that it is repeated.
func (r retryRow) isRepeated(t *testing.T) {
	t.Helper()
	steps := []func(http.ResponseWriter){r.step(t)}
	if r.repeated {
		steps = append(steps, r.step(t), answer(202, ""))
	}
	c, s := scripted(t, steps...)
	err := c.Increment(t.Context(), countmill.Increment{Counter: "a", Delta: 1})
	if (err == nil) != (r.repeated || r.want == nil) || len(s.steps) > 0 {
		t.Errorf("got %v and %d answers not asked for; want a repeat: %t", err, len(s.steps), r.repeated)
	}
	for i := range s.keys {
		if s.keys[i] == "" || s.keys[i] != s.keys[0] || s.bodies[i] != s.bodies[0] {
			t.Errorf("keys %q, bodies %q: want the same request again", s.keys, s.bodies)
		}
	}
}

// isReported: the only try ends with the row's error. If the row is the first try, and the second is
// denied, the error says whether it may have been counted.
func (r retryRow) isReported(t *testing.T) {
	t.Helper()
	_, s := scripted(t, r.step(t))
	err := open(t, s.base, client.WithTries(1)).Increment(t.Context(), countmill.Increment{Counter: "a", Delta: 1})
	if !errors.Is(err, r.want) {
		t.Errorf("one try: got %v, want %v", err, r.want)
	}
	for name, sentinel := range sentinels {
		if sentinel != nil && sentinel != r.want && errors.Is(err, sentinel) {
			t.Errorf("one try: %v is %s too", err, name)
		}
	}
	if !r.repeated {
		return
	}
	c, _ := scripted(t, r.step(t), answer(403, "forbidden"))
	err = c.Increment(t.Context(), countmill.Increment{Counter: "a", Delta: 1})
	if maybe := errors.Is(err, countmill.ErrOutcomeUnknown); maybe != (r.counted == "maybe") || maybe == errors.Is(err, client.ErrDenied) {
		t.Errorf("denied after it: got %v, want counted: %s", err, r.counted)
	}
}

// connectsLate: a connection that can be made at the second try is a success.
func (r retryRow) connectsLate(t *testing.T) {
	t.Helper()
	c := open(t, "http://127.0.0.1:1", client.WithTries(2))
	if err := c.Increment(t.Context(), countmill.Increment{Counter: "a", Delta: 1}); !errors.Is(err, r.want) || errors.Is(err, countmill.ErrOutcomeUnknown) {
		t.Errorf("got %v, want %v", err, r.want)
	}
	_, s := scripted(t, answer(202, ""))
	dials := 0
	c = open(t, s.base, client.WithHTTPClient(&http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials++; dials == 1 {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}}))
	// A delete is not repeated unless it was certainly not sent.
	if _, err := c.Delete(t.Context(), "a"); err != nil || dials != 2 {
		t.Errorf("a second connection: got %v after %d", err, dials)
	}
}

// A server that does not answer leaves time for a second try.
func TestAServerThatHangs(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server sees the end of the connection
		if calls.Add(1) == 1 {
			<-r.Context().Done()
			return
		}
		answer(202, "")(w)
	}))
	defer server.Close()
	c := open(t, server.URL, client.WithTimeout(6*time.Second))
	if err := c.Increment(t.Context(), countmill.Increment{Counter: "a", Delta: 1}); err != nil {
		t.Error(err)
	}
}

// A machine that was suspended while the answer was on its way sends nothing again: the server may have forgotten the key.
func TestNoRepeatAfterASuspension(t *testing.T) {
	t.Parallel()
	c, s := scripted(t, cut)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := c.Increment(suspended{ctx}, countmill.Increment{Counter: "a", Delta: 1})
	s.wait(t)
	if !errors.Is(err, countmill.ErrOutcomeUnknown) || len(s.keys) != 1 {
		t.Errorf("got %v after %d requests, want ErrOutcomeUnknown after 1", err, len(s.keys))
	}
}

// A suspended context ended an hour ago by the wall clock, and goes on by the other one.
type suspended struct{ context.Context }

func (s suspended) Deadline() (time.Time, bool) {
	deadline, has := s.Context.Deadline()
	(*struct{ wall uint64 })(unsafe.Pointer(&deadline)).wall -= 3600 << 30 // seconds are above 30 bits of nanoseconds
	return deadline, has
}

// A 503 of a proxy may come after the server has the request. The error of a single call has the key, and the
// same call with it is the same request.
func TestErrorsHaveTheKey(t *testing.T) {
	t.Parallel()
	inc := countmill.Increment{Counter: "a", Delta: 1}
	for name, call := range map[string]func(c *client.Client, key string) error{
		"Increment": func(c *client.Client, key string) error {
			if key == "" {
				return c.Increment(t.Context(), inc)
			}
			return c.Increment(t.Context(), inc, client.WithKey(key))
		},
		"Reset": func(c *client.Client, key string) error {
			_, err := c.Reset(t.Context(), "a", key)
			return err
		},
		"Next": func(c *client.Client, key string) error {
			_, err := c.Next(t.Context(), countmill.NextRequest{Sequence: "a", ID: key})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := scripted(t, foreign(503), foreign(503))
			c := open(t, s.base, client.WithTries(1))
			key := ""
			for range 2 {
				err := call(c, key)
				failed, ok := errors.AsType[*client.CallError](err)
				if !ok || failed.Key == "" || !errors.Is(err, countmill.ErrOutcomeUnknown) || errors.Is(err, countmill.ErrUnavailable) {
					t.Fatalf("got %v, want ErrOutcomeUnknown with a key", err)
				}
				key = failed.Key
			}
			if s.keys[0] != s.keys[1] || s.bodies[0] != s.bodies[1] || !strings.Contains(s.keys[0]+s.bodies[0], key) {
				t.Errorf("the keys %q and the bodies %q, want the same request twice", s.keys, s.bodies)
			}
		})
	}
}

// A transport that says nothing of its connections may have sent the request before it failed.
func TestTransportsOfOthers(t *testing.T) {
	t.Parallel()
	c := open(t, "http://127.0.0.1:1", client.WithTries(1), client.WithHTTPClient(&http.Client{Transport: silent{}}))
	if err := c.Increment(t.Context(), countmill.Increment{Counter: "a", Delta: 1}); !errors.Is(err, countmill.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrOutcomeUnknown", err)
	}
}

type silent struct{}

func (silent) RoundTrip(*http.Request) (*http.Response, error) { return nil, syscall.ECONNRESET }

// A mistake in a request is an error at once, and not an outage.
func TestMistakesAreNoOutage(t *testing.T) {
	t.Parallel()
	if _, err := client.New("http://127.0.0.1:1", client.WithToken("a token\nand more")); err == nil || strings.Contains(err.Error(), "more") {
		t.Errorf("a token of two lines: got %v, want an error without the token", err)
	}
	source := client.WithTokenSource(func(context.Context) (string, error) { return "a\nb", nil })
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	_, plain := scripted(t)
	for name, tc := range map[string]struct {
		base   string
		option client.Option
		key    string
		want   error
	}{
		"a token source":         {"http://127.0.0.1:1", source, "k", client.ErrDenied},
		"a key":                  {"http://127.0.0.1:1", client.WithTries(0), "a\nb", countmill.ErrInvalid},
		"https of a plain one":   {strings.Replace(plain.base, "http:", "https:", 1), client.WithTries(0), "k", countmill.ErrInvalid},
		"an unknown certificate": {secure.URL, client.WithTries(0), "k", countmill.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			retried := false
			c := open(t, tc.base, tc.option)
			_, err := c.Do(t.Context(), client.Request{Method: http.MethodPost, Path: "/v1/increments", Key: tc.key, Safe: true, OnRetry: func(error) { retried = true }})
			if !errors.Is(err, tc.want) || errors.Is(err, countmill.ErrUnavailable) || retried {
				t.Errorf("got %v, repeated: %t; want %v at once", err, retried, tc.want)
			}
		})
	}
}

// Options beyond their limits are refused.
func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []client.Option{client.WithTimeout(0), client.WithSilence(-1), client.WithTries(-1)} {
		if _, err := client.New("http://localhost:1", o); err == nil {
			t.Error("an option beyond its limits was taken")
		}
	}
}

// Events has each event, with the bytes that were sent. It ends with the connection, or in silence.
func TestEvents(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			fmt.Fprint(w, strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 8))
			return
		}
		fmt.Fprint(w, ": hello\n\nevent: totals\ndata: {\"new\":1}\n\nevent: problem\ndata: {\"type\":\"urn:countmill:problem:unavailable\",\"status\":503}\n\n")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/quiet" {
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	for path, tc := range map[string]struct {
		silence time.Duration // longer than a busy machine makes a pause
		want    error
	}{"/quiet": {2 * time.Second, client.ErrSilent}, "/ends": {time.Hour, countmill.ErrOutcomeUnknown}} {
		c := open(t, server.URL, client.WithSilence(tc.silence))
		var seen []string
		for e, err := range c.Events(t.Context(), client.Request{Path: path}) {
			switch {
			case err != nil:
				if !errors.Is(err, tc.want) || tc.want != client.ErrSilent && errors.Is(err, client.ErrSilent) {
					t.Errorf("%s: got %v, want %v", path, err, tc.want)
				}
				seen = append(seen, "end")
			case e.Problem() != nil:
				seen = append(seen, e.Problem().Type)
			default:
				seen = append(seen, e.Name+string(e.Data))
			}
		}
		if got := strings.Join(seen, " "); got != `totals{"new":1} unavailable end` {
			t.Errorf("%s: got %s", path, got)
		}
	}
	var long error
	for _, long = range open(t, server.URL).Events(t.Context(), client.Request{Path: "/long"}) {
	}
	if !errors.Is(long, bufio.ErrTooLong) {
		t.Errorf("an event of 8 MiB: got %v", long)
	}
	for _, err := range open(t, "http://127.0.0.1:1").Events(t.Context(), client.Request{Path: "/"}) {
		if !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("no server: got %v, want ErrUnavailable", err)
		}
	}
}

// The number in a 202 is compared with the number that was sent. Whoever answers less, or more, is no
// countmill, or has not understood the request: increments may be lost. So it is an error, and one
// that says "maybe".
func TestAcceptedNumberIsChecked(t *testing.T) {
	t.Parallel()
	for _, off := range []int{0, -1, 1} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusAccepted)
			_, _ = fmt.Fprintf(w, `{"accepted":%d,"parts":%d}`, strings.Count(string(body), `"counter"`)+off, 1+off)
		}))
		c := open(t, server.URL, client.WithTries(1), client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}))
		called := 0
		note := client.WithAccepted(func(client.Accepted) { called++ })
		three := make([]countmill.Increment, 3)
		for i := range three {
			three[i] = countmill.Increment{Counter: "a", Delta: 1}
		}
		for call, err := range map[string]error{
			"Increment":     c.Increment(t.Context(), three[0], note),
			"IncrementMany": c.IncrementMany(t.Context(), three, note),
		} {
			many, isMany := errors.AsType[*client.ManyError](err)
			switch {
			case off == 0 && err != nil:
				t.Errorf("%s, the right number: got %v", call, err)
			case off != 0 && !errors.Is(err, countmill.ErrOutcomeUnknown):
				t.Errorf("%s, %+d accepted: got %v, want ErrOutcomeUnknown", call, off, err)
			case isMany && (many.Counted != 0 || many.Size != 3):
				t.Errorf("%s, %+d accepted: %d counted, %d open, want 0 and 3", call, off, many.Counted, many.Size)
			}
		}
		if _, err := c.SendBatch(t.Context(), nil); off < 0 && !errors.Is(err, countmill.ErrOutcomeUnknown) || off >= 0 && err != nil {
			t.Errorf("SendBatch, %d parts: got %v, want ErrOutcomeUnknown for 0 alone", 1+off, err)
		}
		if want := map[bool]int{true: 2}[off == 0]; called != want {
			t.Errorf("%+d accepted: the answer was handed over %d times, want %d", off, called, want)
		}
		server.Close()
	}
}
