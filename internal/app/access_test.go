package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/httpserver"
)

// A logBuffer is a log that tests read while others write.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startGuarded runs `up` with a token of each scope, by scope, and "pages": all scopes,
// for counters that begin with page:. Its log is that of the command at debug level.
func startGuarded(t *testing.T) (r *running, secrets map[auth.Scope]string, log *logBuffer, tokens string) {
	t.Helper()
	var list []auth.Token
	for _, scope := range auth.Scopes() {
		list = append(list, auth.Token{Name: string(scope), Scopes: []auth.Scope{scope}})
	}
	list = append(list, auth.Token{Name: "pages", Scopes: auth.Scopes(), Prefixes: []string{"page:"}})
	tokens, made := authtest.File(t, list...)
	log = &logBuffer{}
	r = startWith(t, Config{Tokens: tokens, Logger: NewLogger(Config{LogLevel: "debug"}, log)})
	secrets = make(map[auth.Scope]string)
	for i, token := range list {
		secrets[auth.Scope(token.Name)] = made[i]
	}
	return r, secrets, log, tokens
}

func bearer(secret string) []string { return []string{"Authorization", "Bearer " + secret} }

func pathOf(route httpserver.Route, counter string) string {
	return strings.ReplaceAll(route.Pattern, "{name}", url.PathEscape(counter))
}

// open are the routes without a token, each with the reason. Everything else needs one.
var open = map[string]string{
	"GET /healthz":      "supervisors ask it, and it says nothing but ok",
	"GET /readyz":       "supervisors ask it; strangers are not told the reason",
	"GET /openapi.json": "it is the same for every countmill, and public",
	"GET /badge/{name}": "pictures send no token; it shows public counters alone",
}

func TestEveryRouteAndScope(t *testing.T) {
	t.Parallel()
	r, secrets, _, _ := startGuarded(t)
	for _, route := range api.Routes() {
		name := route.Method + " " + route.Pattern
		if route.Need.ForAnyone() != (open[name] != "") {
			t.Errorf("%s: open is %t, and the reasons for that are %q", name, route.Need.ForAnyone(), open[name])
		}
		try := func(who string, want func(int) bool, header ...string) {
			t.Helper()
			if status, text := r.call(t, route.Method, pathOf(route, "page:a"), "", header...); !want(status) {
				t.Errorf("%s as %s: got %d %s", name, who, status, text)
			}
		}
		is := func(want int) func(int) bool { return func(got int) bool { return got == want } }
		passes := func(got int) bool { return got != 401 && got != 403 }
		if route.Need.ForAnyone() {
			try("nobody", passes)
			try("a wrong token", passes, bearer("x")...)
			continue
		}
		try("nobody", is(401))
		try("a wrong token", is(401), bearer("cmtok_"+strings.Repeat("A", 43))...)
		try("a password", is(401), "Authorization", "Basic dXNlcjpwYXNz")
		for _, scope := range auth.Scopes() {
			want := is(403)
			if scope == route.Need.Scope() {
				want = passes
			}
			try(string(scope), want, bearer(secrets[scope])...)
		}
		want := is(403)
		if route.Need.PerCounter() {
			want = passes
		}
		try("pages", want, bearer(secrets["pages"])...)
	}
}

// outside has requests about a counter that does not begin with page:, for each route that asks
// for single counters. A route that checks prefixes needs one, or the reason why none can be.
var outside = map[string][]struct{ query, contentType, body string }{
	"POST /v1/increments": {
		{"", "application/json", `{"counter":"shop:a"}`},
		{"", "application/json", `[{"counter":"page:a"},{"counter":"shop:a","id":"x"}]`},
		{"", "application/x-ndjson", "{\"counter\":\"page:a\"}\n{\"counter\":\"shop:a\"}\n"},
	},
	"POST /v1/batches":        {{"", typeBatch, aBatch("shop:a")}, {"", typeBatch, aBatch("page:a", "shop:a")}},
	"GET /v1/totals":          {{query: "?group=page:a"}, {query: "?counter=shop:a"}, {query: "?counter=page:a&counter=shop:a"}, {query: "?counter=page"}},
	"POST /v1/totals":         {{"", "application/json", `{"counters":["page:a","shop:a"]}`}, {"", "application/json", `{"groups":["page:a"]}`}},
	"GET /v1/counters":        {{query: "?prefix=shop:"}, {query: "?prefix=pagex"}},
	"GET /v1/counters/{name}": {{}},
	"GET /v1/watch":           {{query: "?group=page:a"}, {query: "?prefix=%3Dpage:"}, {query: "?counter=page:a&counter=shop:a"}, {query: "?prefix=shop:"}, {query: "?prefix=pagex"}},
	"GET /v1/series":          {{query: "?group=page:a"}, {query: "?counter=shop:a"}, {query: "?counter=page:a&counter=shop:a"}},
	"GET /v1/rank":            {{query: "?index=a&counter=shop:a"}, {query: "?index=a&counter=page"}},
	"GET /v1/top":             nil, // it names an index: TestRightsFollowTheData
	"GET /v1/shards":          {{query: "?counter=shop:a"}, {query: "?counter=page"}},
	"GET /v1/journal":         {{query: "?counter=shop:a"}, {query: "?counter=page"}},
	"GET /metrics/counters":   {{query: "?match=shop:a"}, {query: "?match=page:*&match=shop:*"}, {query: "?match=pages*"}},
	"GET /v1/overview":        nil, // it names no counter to a caller with prefixes: TestRightsFollowTheData

	"PATCH /v1/counters/{name}":  {{"", "application/json", `{"shards":5}`}},
	"DELETE /v1/counters/{name}": {{}},
	"POST /v1/reset":             {{"", "application/json", `{"counter":"shop:a"}`}},

	"GET /v1/indexes": nil, // it leaves out indexes that the caller may not see: TestIndexesAndPrefixes
	"POST /v1/indexes": {
		{"", "application/json", `{"name":"a","match":"shop:{a}","group":"x:{a}"}`},
		{"", "application/json", `{"name":"a","match":"page:{a}","group":"x:{a}"}`}, // =x: is not the caller's
		{"", "application/json", `{"name":"a","match":"page:{a}","group":"page:{a}"}`},
		{"", "application/json", `{"name":"a","match":"{a}","group":"page:{a}"}`},
	},
	"DELETE /v1/indexes":      nil, // 404: TestIndexesAndPrefixes
	"POST /v1/sequences/next": {{"", "application/json", `{"sequence":"shop:a"}`}},
	"GET /v1/sequences":       {{"?sequence=shop:a", "", ""}},
	"DELETE /v1/sequences":    {{"?sequence=shop:a", "", ""}},
}

func TestPrefixesHoldOnEveryRoute(t *testing.T) {
	t.Parallel()
	r, secrets, _, _ := startGuarded(t)
	r.incr(t, `[{"counter":"shop:a"},{"counter":"page:a"},{"counter":"q"}]`, bearer(secrets[auth.Publish])...)
	if status, text := r.call(t, "POST", "/v1/indexes", `{"name":"shops","match":"shop:{a}","group":"shop:{a}"}`, bearer(secrets[auth.Admin])...); status != 200 {
		t.Fatalf("an index: got %d %s", status, text)
	}
	for _, route := range api.Routes() {
		name := route.Method + " " + route.Pattern
		requests, known := outside[name]
		if route.Need.PerCounter() && !known {
			t.Errorf("%s checks counters by itself: add a request about a counter that is not the caller's", name)
		}
		for _, q := range requests {
			status, text := r.call(t, route.Method, pathOf(route, "shop:a")+q.query, q.body,
				append(bearer(secrets["pages"]), "Content-Type", q.contentType)...)
			if status != http.StatusForbidden || !strings.Contains(text, "urn:countmill:problem:forbidden") || !strings.Contains(text, `"limit":"page:*"`) {
				t.Errorf("%s%s %s: got %d %s, want 403 with the limit", name, q.query, q.body, status, text)
			}
		}
	}
	for counter, want := range map[string]string{"page:a": "1", "shop:a": "1"} { // countmill counted nothing that it refused
		if _, text := r.call(t, "GET", "/v1/counters/"+counter, "", bearer(secrets[auth.Read])...); !strings.Contains(text, `"total":`+want+",") {
			t.Errorf("%s: got %s, want %s", counter, text, want)
		}
	}
	if status, text := r.call(t, "GET", "/v1/counters", "", bearer(secrets["pages"])...); status != 200 || !strings.Contains(text, "page:a") || strings.Contains(text, "shop:a") || strings.Contains(text, `"q"`) {
		t.Errorf("its list is %d %s, want page:a alone", status, text)
	}
}

// Tokens turn up in places where they do not belong. None shows in a log, an answer that
// refuses, or a metric.
func TestNoTokenIsShown(t *testing.T) {
	t.Parallel()
	r, secrets, log, tokens := startGuarded(t)
	secret := secrets["pages"]
	var shown []string
	look := func(method, path, body string, header ...string) {
		t.Helper()
		status, text := r.call(t, method, path, body, header...)
		if status < 400 && !strings.HasPrefix(path, "/metrics?") { // it takes no notice of a query
			t.Errorf("%s %s: got %d, want a refusal", method, path, status)
		}
		shown = append(shown, text)
	}
	escaped := url.QueryEscape(secret)
	for _, auth := range [][]string{nil, bearer(secret), bearer(secret[:30]), bearer(secret + "x"), {"Authorization", secret}, {"Authorization", "Basic " + secret}, {"X-Token", secret}} {
		for _, route := range api.Routes() {
			if !route.Need.ForAnyone() {
				look(route.Method, pathOf(route, secret)+"?"+escaped, secret, auth...)
				look(route.Method, pathOf(route, secret)+"?access_token="+escaped, `{"`+secret+`":1}`, auth...)
				look("PUT", pathOf(route, secret)+"?token=%zz"+secret, `{"counter":"`+secret+`"}`, auth...)
			}
		}
		look("GET", "/"+secret, "", auth...)
		look("GET", "/v1/totals?counter="+escaped, "", auth...)
		look("GET", "/v1/watch?counter="+escaped, "", auth...)
		look("GET", "/v1/watch?prefix="+escaped, "", auth...)
		look("GET", "/v1/counters?page_token="+escaped, "", auth...)
		look("GET", "/v1/counters?prefix="+escaped, "", auth...)
		look("GET", "/v1/totals?counter=page:a&max_staleness="+escaped, "", auth...)
		look("POST", "/v1/increments", `[{"counter":"page:a"},{"counter":"`+secret+`"}]`, auth...)
		look("POST", "/v1/increments", `{"counter":"page:a","`+secret+`":1}`, auth...)
		look("POST", "/v1/increments", `{"counter":"page:a","delta":`+secret+`}`, auth...)
		look("POST", "/v1/increments", `{"counter":"page:a"}`, append(slices.Clone(auth), "Content-Type", secret)...)
		look("POST", "/v1/increments", `{"counter":"shop:a"}`, append(slices.Clone(auth), "Idempotency-Key", secret)...)
	}
	if err := os.WriteFile(tokens, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	serviceOf[*guarding](t, r.App).Reload(t.Context())
	_, metrics := r.call(t, "GET", "/metrics", "", bearer(secrets[auth.Metrics])...)
	_, ready := r.call(t, "GET", "/readyz", "", bearer(secret)...)
	r.log.Error("a mistake of ours", "token", secret, slog.Any("err", fmt.Errorf("with %s", secret)))
	const piece = 12 // of the random characters
	for what, text := range map[string]string{"log": log.String(), "answers": strings.Join(shown, "\n"), "metrics": metrics, "readyz": ready} {
		if len(text) < 100 {
			t.Errorf("%s: %q is too short to hold anything", what, text)
		}
		if i := strings.Index(text, secret[6:6+piece]); i >= 0 {
			t.Errorf("%s shows the token: ...%s...", what, text[max(0, i-200):min(len(text), i+100)])
		}
	}
}

// A bad version of the file changes nothing, and shows. An empty one takes all tokens back.
func TestBadFileOfTokensShows(t *testing.T) {
	t.Parallel()
	r, secrets, _, tokens := startGuarded(t)
	scrape := bearer(secrets[auth.Metrics])
	r.waitReady(t)
	if err := os.WriteFile(tokens, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.poll(t, "degraded", func() bool { // by its own look at the file
		status, text := r.call(t, "GET", "/readyz", "", scrape...)
		return status == 200 && strings.Contains(text, `"degraded"`) && strings.Contains(text, "line 1: is not a JSON object")
	})
	if _, text := r.call(t, "GET", "/readyz", ""); !strings.Contains(text, `"reason":"tokens: ask with a token`) || strings.Contains(text, "line 1") {
		t.Errorf("a stranger is told %s", text)
	}
	status, text := r.call(t, "GET", "/metrics", "", scrape...)
	for _, want := range []string{"\ncountmill_tokens 5\n", "\ncountmill_tokens_file_valid 0\n", "\ncountmill_refused_requests_total{status=\"401\"} 0\n"} {
		if status != 200 || !strings.Contains(text, want) {
			t.Errorf("metrics (%d) lack %q", status, want)
		}
	}
	made := authtest.Write(t, tokens, auth.Token{Name: "new", Scopes: []auth.Scope{auth.Read}})
	r.poll(t, "mended", func() bool {
		status, _ := r.call(t, "GET", "/v1/counters", "", bearer(made[0])...)
		return status == 200
	})
	if status, _ := r.call(t, "GET", "/metrics", "", scrape...); status != 401 {
		t.Errorf("a token that was taken out: got %d, want 401", status)
	}
	if err := os.Truncate(tokens, 0); err != nil { // takes all tokens back
		t.Fatal(err)
	}
	r.poll(t, "refused", func() bool {
		status, _ := r.call(t, "GET", "/v1/counters", "", bearer(made[0])...)
		return status == 401
	})
	if status, text := r.call(t, "GET", "/readyz", ""); status != 200 || !strings.Contains(text, `"degraded"`) || !strings.Contains(text, `"tokens: `) {
		t.Errorf("/readyz without tokens: got %d %s, want degraded", status, text)
	}
}

func TestListeningBeyondThisMachine(t *testing.T) {
	t.Parallel()
	file, _ := authtest.File(t, auth.Token{Name: "a", Scopes: []auth.Scope{auth.Read}})
	for _, roles := range []Roles{Up, Publisher, Aggregator, Reader} {
		for _, tc := range []struct {
			listen, tokens string
			insecure, ok   bool
		}{
			{"127.0.0.1:0", "", false, true}, {"127.9.9.9:0", "", false, true}, {"[::1]:0", "", false, true}, {"localhost:0", "", false, true},
			{"[::ffff:127.0.0.1]:0", "", false, true},
			{":0", "", false, false}, {"0.0.0.0:0", "", false, false}, {"[::]:0", "", false, false}, {"10.0.0.1:0", "", false, false},
			{"example.com:80", "", false, false}, {"127.0.0.1.example.com:80", "", false, false}, {"localhost.example.com:80", "", false, false},
			{"0.0.0.0:0", file, false, true}, {"0.0.0.0:0", "", true, true}, {"127.0.0.1:0", file, false, true}, {"127.0.0.1:0", "", true, true},
		} {
			err := Config{Roles: roles, Listen: tc.listen, Tokens: tc.tokens, Insecure: tc.insecure,
				Bus: "pubsub://p/t?subscription=s", Store: "datastore://p"}.Check()
			if (err == nil) != tc.ok {
				t.Errorf("%s --listen %s --tokens %q --insecure=%t: got error %v, want ok %t", roles, tc.listen, tc.tokens, tc.insecure, err, tc.ok)
			}
			if err != nil && (!strings.Contains(err.Error(), "--tokens") || !strings.Contains(err.Error(), "--insecure") || !strings.Contains(err.Error(), "--listen "+tc.listen)) {
				t.Errorf("%v does not name the flags", err)
			}
		}
	}
	if err := (Config{Tokens: file, Insecure: true}).Check(); err == nil || !strings.Contains(err.Error(), "give one of them") {
		t.Errorf("both: got %v", err)
	}
}

// A host name may resolve to another address than it suggests: the bound address counts.
func TestBoundAddressIsChecked(t *testing.T) {
	t.Parallel()
	cfg := Config{Listen: "0.0.0.0:0", Store: "pebble:" + t.TempDir()}
	a, err := newApp(cfg, openBackends) // without Check
	if err == nil || !strings.Contains(err.Error(), "--insecure") {
		t.Errorf("got %v, want an error that names --insecure", err)
	}
	if a != nil {
		t.Error(a.Close())
	}
}
