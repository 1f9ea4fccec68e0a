package httpserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/auth"
)

func echo(label string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", label, r.Method, r.PathValue("name"))
	})
}

func testRouter() *Router {
	rt := NewRouter(nil)
	rt.Handle("POST", "/v1/increments", auth.Anyone, echo("increments"))
	rt.Handle("GET", "/v1/totals", auth.Anyone, echo("totals"))
	rt.Handle("POST", "/v1/totals", auth.Anyone, echo("totals"))
	rt.Handle("GET", "/v1/counters", auth.Anyone, echo("list"))
	rt.Handle("GET", "/v1/counters/{name}", auth.Anyone, echo("counter"))
	rt.Handle("PATCH", "/v1/counters/{name}", auth.Anyone, echo("counter"))
	return rt
}

// exchange sends a request line byte for byte, as no client library would clean it.
func exchange(tb testing.TB, addr, method, target string) *http.Response {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", method, target)
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestRouterFindsHandlers(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(testRouter())
	t.Cleanup(srv.Close)
	for _, tc := range []struct{ method, target, want string }{
		{"POST", "/v1/increments", "increments POST "},
		{"GET", "/v1/totals", "totals GET "},
		{"GET", "/v1/counters", "list GET "},
		{"GET", "/v1/counters/a", "counter GET a"},
		{"PATCH", "/v1/counters/a", "counter PATCH a"},
		{"GET", "/v1/counters/a%2Fb", "counter GET a/b"},
		{"GET", "/v1/counters/a%2F%2E%2E%2Fb", "counter GET a/../b"},
		{"GET", "/v1/counters/https:%2F%2Fx.org%2Fp", "counter GET https://x.org/p"},
		{"GET", "/v1/counters/%2E%2E", "counter GET .."},
		{"GET", "/v1/counters/100%25%3F%20%C3%A9", "counter GET 100%? é"},
		{"GET", "/v1/counters/a%2Fb|c", "counter GET a/b|c"},
		{"GET", "http://x/v1/counters/a%2Fb", "counter GET a/b"},
		{"HEAD", "/v1/counters/a", ""},
	} {
		resp := exchange(t, srv.Listener.Addr().String(), tc.method, tc.target)
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || string(body) != tc.want {
			t.Errorf("%s %s: got %d %q %v, want 200 %q", tc.method, tc.target, resp.StatusCode, body, err, tc.want)
		}
	}
}

func TestRouterAnswersTheRestWithProblems(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(testRouter())
	t.Cleanup(srv.Close)
	const segment = "%2F"
	for _, tc := range []struct {
		method, target string
		status         int
		allow          string
		detail         string
	}{
		{"GET", "/", 404, "", "no such path"},
		{"GET", "/v1//counters/a", 404, "", "no such path"},
		{"GET", "//v1/counters/a", 404, "", "no such path"},
		{"GET", "/v1/../v1/counters/a", 404, "", "no such path"},
		{"POST", "/v1%2Fincrements", 404, "", "no such path"},
		{"GET", "/v1/totals/", 404, "", "no such path"},
		{"GET", "/v1/counters/a/b", 404, "", segment},
		{"GET", "/v1/counters//a", 404, "", segment},
		{"GET", "/v1/counters/", 404, "", "nothing is named"},
		{"GET", "/v1/counters/..", 404, "", "ends in .."},
		{"GET", "/v1/counters/.", 404, "", "ends in ."},
		{"DELETE", "/v1/counters/a", 405, "GET, HEAD, PATCH", "GET, HEAD, PATCH"},
		{"GET", "/v1/increments", 405, "POST", "POST"},
		{"HEAD", "/v1/increments", 405, "POST", ""},
		{"PUT", "/v1/totals", 405, "GET, HEAD, POST", "POST"},
		{"OPTIONS", "/v1/increments", 405, "POST", "POST"},
		{"get", "/v1/totals", 405, "GET, HEAD, POST", "GET"},
	} {
		resp := exchange(t, srv.Listener.Addr().String(), tc.method, tc.target)
		if resp.StatusCode != tc.status || resp.Header.Get("Allow") != tc.allow || resp.Header.Get("Location") != "" {
			t.Errorf("%s %s: got %d, Allow %q, Location %q; want %d, %q, none", tc.method, tc.target,
				resp.StatusCode, resp.Header.Get("Allow"), resp.Header.Get("Location"), tc.status, tc.allow)
			continue
		}
		if tc.method == "HEAD" {
			continue
		}
		if p := problemOf(t, resp); !strings.Contains(p.Detail, tc.detail) {
			t.Errorf("%s %s: got detail %q, want %q in it", tc.method, tc.target, p.Detail, tc.detail)
		}
	}
}

// A pattern that is none or is taken, and a route that says nothing of its callers, cannot be registered.
func TestRouterRefusesBadRoutes(t *testing.T) {
	t.Parallel()
	routes := map[string]auth.Need{"/v1/none": {}, "/v1/scope": auth.Whole(""), "/v1/other": auth.PerCounter("write")}
	for _, pattern := range []string{"", "v1", "/v1/{id}", "/v1/{name}/x", "/v1 ", "/v1/totals", "/v1/counters/{name}"} {
		routes[pattern] = auth.Anyone
	}
	for pattern, need := range routes {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("pattern %q, need %+v: no panic", pattern, need)
				}
			}()
			testRouter().Handle("GET", pattern, need, echo("x"))
		}()
	}
}
