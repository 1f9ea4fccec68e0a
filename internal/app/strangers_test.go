package app

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
)

const half = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"

// A stranger is a connection with half of a request.
type stranger struct {
	net.Conn
	answers *bufio.Reader
}

func (r *running) stranger(t *testing.T, path string) stranger {
	t.Helper()
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, half, path); err != nil {
		t.Fatal(err)
	}
	return stranger{conn, bufio.NewReader(conn)}
}

// status is that of an answer, or 0 if there is none.
func (s stranger) status() int {
	_ = s.SetReadDeadline(time.Now().Add(30 * time.Second))
	resp, err := http.ReadResponse(s.answers, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// among repeats a request until it has that answer, whose text it returns: half requests that the server has yet to read may
// replace a connection that looks like theirs.
func (r *running) among(t *testing.T, strangers []stranger, want int, method, path, body string, header ...string) string {
	t.Helper()
	for range strangers {
		if status, text, err := r.try(method, path, body, header...); err == nil && status == want {
			return text
		}
	}
	t.Fatalf("%d strangers keep out %s %s", len(strangers), method, path)
	return ""
}

// Strangers with more connections than there may be, each with half of a request, keep nobody out, and the process
// stops without them.
func TestStrangersKeepNobodyOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tokens        bool
		first, onStop int // answers to strangers
	}{"with tokens": {true, 401, 0}, "without tokens": {false, 0, 503}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Connections: 16, ShutdownTimeout: time.Hour}
			var header []string
			if tc.tokens {
				tokens, secrets := authtest.File(t, auth.Token{Name: "a", Scopes: auth.Scopes()})
				cfg.Tokens, header = tokens, bearer(secrets[0])
			}
			r := startWith(t, cfg)
			r.incr(t, `{"counter":"a"}`, header...)
			strangers := []stranger{r.stranger(t, "/v1/increments")}
			first := 0
			if tc.tokens {
				first = strangers[0].status() // before others replace its connection
			}
			for range 40 {
				strangers = append(strangers, r.stranger(t, "/v1/increments"))
			}
			if !tc.tokens {
				first = strangers[0].status()
				r.client.CloseIdleConnections() // nothing tells its kept connection from those of strangers
			}
			if first != tc.first {
				t.Errorf("a stranger's first request gets %d, want %d", first, tc.first)
			}
			r.among(t, strangers, 202, "POST", "/v1/increments", `{"counter":"a","id":"again"}`, header...)
			r.among(t, strangers, 200, "GET", "/healthz", "")
			if text := r.among(t, strangers, 200, "GET", "/v1/counters/a", "", header...); !strings.Contains(text, `"total":2`) {
				t.Errorf("the total is %s", text)
			}
			r.stop(t)
			got := make(map[int]int)
			for _, stranger := range strangers[1:] {
				got[stranger.status()]++
			}
			if tc.onStop != 0 && got[tc.onStop] == 0 {
				t.Errorf("half requests get %v at the stop, want %d", got, tc.onStop)
			}
		})
	}
}
