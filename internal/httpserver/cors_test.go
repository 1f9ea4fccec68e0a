package httpserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/internal/auth"
)

// corsAnswer is the status of an answer and those of its headers that browsers go by.
func corsAnswer(h http.Handler, method, path string, header ...string) (int, map[string]string) {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	got := make(map[string]string)
	for name, values := range w.Header() {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			got[name] = strings.Join(values, "; ")
		}
	}
	return w.Code, got
}

func TestCORS(t *testing.T) {
	t.Parallel()
	const page, stranger = "https://page.example", "https://evil.example"
	const varyAll = "Origin; Access-Control-Request-Method, Access-Control-Request-Headers"
	listed, _, secrets := guarded(t, nil)
	listed.AllowOrigins(page, "http://localhost:3000")
	all, _, _ := guarded(t, nil)
	all.AllowOrigins(AnyOrigin)
	none, _, _ := guarded(t, nil)
	vary := map[string]string{"Vary": "Origin"}
	read := func(origin string) map[string]string {
		return map[string]string{"Vary": "Origin", "Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": corsExposed}
	}
	asked := func(origin, methods string) map[string]string {
		m := read(origin)
		m["Vary"] = varyAll
		m["Access-Control-Allow-Methods"] = methods
		m["Access-Control-Allow-Headers"] = "Authorization, Content-Type, Idempotency-Key"
		m["Access-Control-Max-Age"] = "600"
		return m
	}
	const preflightOf = "Access-Control-Request-Method"
	for _, tc := range []struct {
		name   string
		router *Router
		method string
		path   string
		header []string
		status int
		want   map[string]string
	}{
		{"preflight", listed, "OPTIONS", "/each", []string{"Origin", page, preflightOf, "GET", "Access-Control-Request-Headers", "authorization"}, 204, asked(page, "GET, HEAD")},
		{"preflight of a counter", listed, "OPTIONS", "/counters/a%2Fb", []string{"Origin", "http://localhost:3000", preflightOf, "DELETE"}, 204, asked("http://localhost:3000", "DELETE, GET, HEAD")},
		{"preflight, all", all, "OPTIONS", "/each", []string{"Origin", stranger, preflightOf, "GET"}, 204, asked("*", "GET, HEAD")},
		{"preflight of a stranger", listed, "OPTIONS", "/each", []string{"Origin", stranger, preflightOf, "GET"}, 405, vary},
		{"preflight, none", none, "OPTIONS", "/each", []string{"Origin", page, preflightOf, "GET"}, 405, map[string]string{}},
		{"preflight of no path", listed, "OPTIONS", "/no", []string{"Origin", page, preflightOf, "GET"}, 404, read(page)},
		{"options", listed, "OPTIONS", "/each", []string{"Origin", page}, 405, read(page)},
		{"preflight without an origin", listed, "OPTIONS", "/each", []string{preflightOf, "GET"}, 405, vary},
		{"answer", listed, "GET", "/each", []string{"Origin", page, "Authorization", "Bearer " + secrets["read"]}, 200, read(page)},
		{"refusal", listed, "GET", "/each", []string{"Origin", page}, 401, read(page)},
		{"not found", listed, "GET", "/no", []string{"Origin", page}, 404, read(page)},
		{"all", all, "GET", "/each", []string{"Origin", stranger}, 401, read("*")},
		{"stranger", listed, "GET", "/open", []string{"Origin", stranger}, 200, vary},
		{"nearly", listed, "GET", "/open", []string{"Origin", page + ".evil.example"}, 200, vary},
		{"other scheme", listed, "GET", "/open", []string{"Origin", "http://page.example"}, 200, vary},
		{"null", listed, "GET", "/open", []string{"Origin", "null"}, 200, vary},
		{"no page", listed, "GET", "/open", nil, 200, vary},
		{"none", none, "GET", "/open", []string{"Origin", page}, 200, map[string]string{}},
	} {
		status, got := corsAnswer(tc.router, tc.method, tc.path, tc.header...)
		if diff := cmp.Diff(tc.want, got); diff != "" || status != tc.status {
			t.Errorf("%s: got %d, want %d; headers differ (-want +got):\n%s", tc.name, status, tc.status, diff)
		}
	}
}

// No handler runs for a question.
func TestPreflightReachesNoHandler(t *testing.T) {
	t.Parallel()
	rt := NewRouter(nil)
	rt.AllowOrigins(AnyOrigin)
	rt.Handle("POST", "/x", auth.Anyone, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
	corsAnswer(rt, "OPTIONS", "/x", "Origin", "https://a.example", "Access-Control-Request-Method", "POST")
}

func TestCheckOrigin(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"*": "", "https://example.com": "", "http://localhost:3000": "", "http://[::1]:8080": "", "app://x": "",
		"": "must be an origin", "example.com": "must be an origin", "https://": "must be an origin", "null": "must be an origin", "https://:8080": "must be an origin",
		"https://example.com/": "without a path", "https://a@b": "must be an origin", "https://example.com?x": "must be an origin", "https://Example.com": "lower case",
		"https://*.example.com": "only alone", "https://example.com:443": "leave the port out", "http://example.com:80": "leave the port out",
	} {
		err := CheckOrigin(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
