package httpserver

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/auth"
)

// asked is the name that a router finds in a request as it comes over the wire.
func asked(target string) (name string, status int) {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n")))
	if err != nil {
		return "", 0
	}
	rt := NewRouter(nil)
	rt.Handle("GET", "/v1/counters/{name}", auth.Anyone, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { name = r.PathValue("name") }))
	rec := httptest.NewRecorder()
	rt.ServeHTTP(rec, r)
	return name, rec.Code
}

// FuzzNameInPath: a name that was escaped into a path comes out of it, unless it is "." or
// "..", which clients take for something else.
func FuzzNameInPath(f *testing.F) {
	for _, name := range []string{"a", "a/b", "..", ".", "%2F", "a?b#c", "é", "a b", "a+b", "https://x.org/p", "a|b", "a;b", "//", "/", "a/", "a..b", "a/../b"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if countmill.CheckCounter(name) != nil {
			return
		}
		segment := url.PathEscape(name)
		if name == "." || name == ".." {
			segment = strings.ReplaceAll(name, ".", "%2E")
		}
		if got, status := asked("/v1/counters/" + segment); status != http.StatusOK || got != name {
			t.Errorf("%q as %q: got %q, status %d", name, segment, got, status)
		}
	})
}

// FuzzPath: any path makes an invalid request, gets a 404, or has the name that its one
// segment encodes.
func FuzzPath(f *testing.F) {
	for _, segment := range []string{"a", "a%2Fb", "a/b", "..", "%2e%2E", "%", "%zz", "a|b%2F", "a?b", "", "a%00", "é", "a//b", "a/../b", "a/", "a%2Fb/c", "a%2fb", "a%252Fb"} {
		f.Add(segment)
	}
	f.Fuzz(func(t *testing.T, segment string) {
		if strings.ContainsAny(segment, " \r\n") {
			return
		}
		got, status := asked("/v1/counters/" + segment)
		segment, _, _ = strings.Cut(segment, "?")
		want, err := url.PathUnescape(segment)
		plain := err == nil && segment != "" && segment != "." && segment != ".." && !strings.Contains(segment, "/")
		switch {
		case status == http.StatusOK && (!plain || got != want):
			t.Errorf("%q: got the name %q, want %q (%v)", segment, got, want, err)
		case status != http.StatusOK && status != http.StatusNotFound && status != 0:
			t.Errorf("%q: got status %d", segment, status)
		case plain && status == http.StatusNotFound:
			t.Errorf("%q: got a 404, want the name %q", segment, want)
		}
	})
}
