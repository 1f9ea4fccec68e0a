package app

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
)

// asks returns an answer to a request from a page of an origin, and its text.
func (r *running) asks(t *testing.T, method, path, origin string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", origin)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.Header.Get("Content-Type") == "text/event-stream" {
		return res, ""
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// A cache between a caller and countmill gives nobody an answer that another caller's token brought, and no
// page one that is for a page of another origin.
func TestCachesKeepNothingForOthers(t *testing.T) {
	t.Parallel()
	const origin = "https://example.com"
	tokens, secrets := authtest.File(t, auth.Token{Name: "all", Scopes: auth.Scopes()})
	r := startWith(t, Config{Tokens: tokens, CORSOrigins: []string{origin}})
	me := bearer(secrets[0])
	for path, body := range map[string]string{
		"/v1/rules/series": `{"pattern":"p:*","keep":"1m:6h,15m:400d"}`, "/v1/indexes": `{"name":"i","match":"p:{a}:{b}","group":"p:{a}"}`,
	} {
		if status, text := r.call(t, "POST", path, body, me...); status != 200 {
			t.Fatalf("POST %s: got %d %s", path, status, text)
		}
	}
	r.incr(t, `{"counter":"p:a:b","delta":7}`, me...)
	queries := map[string]string{ // of an answer that is not a refusal
		"/v1/series": "?counter=p:a:b", "/v1/watch": "?counter=p:a:b", "/v1/shards": "?counter=p:a:b",
		"/v1/top": "?index=i", "/v1/rank": "?index=i&counter=p:a:b",
		"/metrics/counters": "?match=p:*",
	}
	for _, route := range api.Routes() {
		name := "p:a:b"
		if strings.HasPrefix(route.Pattern, "/badge/") {
			name += ".json"
		}
		path := pathOf(route, name) + queries[route.Pattern]
		mine, text := r.asks(t, route.Method, path, origin, me...)
		others, same := r.asks(t, route.Method, path, origin)
		if queries[route.Pattern] != "" && mine.StatusCode != http.StatusOK && mine.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s %s: %s %s", route.Method, path, mine.Status, text)
		}
		kept := mine.Header.Get("Cache-Control")
		if strings.HasPrefix(kept, "no-store") {
			continue
		}
		if vary := mine.Header.Values("Vary"); !slices.Contains(vary, "Origin") {
			t.Errorf("%s %s: the answer depends on the origin, and Vary is %q", route.Method, path, vary)
		}
		if !strings.HasPrefix(kept, "private") && (text != same || mine.StatusCode != others.StatusCode) {
			t.Errorf("%s %s: the answer to a token is %s, to others %s, and Cache-Control is %q", route.Method, path, mine.Status, others.Status, kept)
		}
	}
}
