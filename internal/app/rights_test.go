package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

// An ask is a request. Its name is the {name} of the path.
type ask struct{ as, name, query, contentType, body string }

func queried(queries ...string) (asks []ask) {
	for _, q := range queries {
		asks = append(asks, ask{query: q})
	}
	return asks
}

func sent(bodies ...string) (asks []ask) {
	for _, b := range bodies {
		asks = append(asks, ask{contentType: "application/json", body: b})
	}
	return asks
}

var boards = []ask{
	{query: "?index=all&counter=page:a:1"}, {query: "?index=all&counter=page:a:1&window=this-month"}, {query: "?index=all&counter=secret:x"}, {query: "?index=all&counter=%3Dtot:page"},
	{query: "?index=hidden&counter=page:a:1"}, {query: "?index=hidden&counter=%3Dhid:x"},
	{as: "one", query: "?index=shops&counter=shop:a:1"}, {as: "one", query: "?index=all&counter=shop:a:1"}, {query: "?index=sites&counter=page:a:1"},
	{as: "group", query: "?index=shops&counter=%3Dshop:a"}, {as: "groups", query: "?index=sites&counter=%3Dsite:a"}, {as: "groups", query: "?index=sites&counter=page:a:1"},
}

// boardsOf are requests for all of a board.
func boardsOf() (asks []ask) {
	for _, c := range callers[1:] {
		for _, q := range []string{"all", "all&of=groups", "all&window=this-month", "hidden", "hidden&of=groups", "hidden&window=1h", "shops", "shops&of=groups", "shops&window=today", "sites", "sites&of=groups"} {
			asks = append(asks, ask{as: c.Name, query: "?n=3&index=" + q})
		}
	}
	return asks
}

// everybody asks the same.
func everybody() (asks []ask) {
	for _, c := range callers[1:] {
		asks = append(asks, ask{as: c.Name})
	}
	return asks
}

// asks are requests that the rows of an operation would answer, by callers without the right on some of them. Every operation
// has some, but for those that refuse all callers with prefixes. Beside these rows, answers depend on the state of the process, the age of the oldest increment that waits
// (lag), the settings' version, the names of indexes that are taken, and what is left of bounds that all share.
var asks = map[string][]ask{
	"POST /v1/increments": {
		{contentType: "application/json", body: `{"counter":"secret:x"}`}, {contentType: "application/json", body: `{"counter":"page:r"}`, query: "?return=totals"},
		{contentType: "application/json", body: `[{"counter":"page:r"},{"counter":"secret:x"}]`, query: "?return=totals"},
	},
	"POST /v1/batches":        {{contentType: typeBatch, body: aBatch("secret:x")}},
	"GET /v1/totals":          queried("?counter=secret:x", "?counter=page:a:1", "?counter=page:a:1&counter=secret:x", "?group=tot:page", "?group=hid:x"),
	"POST /v1/totals":         sent(`{"counters":["page:a:1"]}`, `{"counters":["secret:x"]}`, `{"groups":["hid:x"]}`),
	"GET /v1/counters":        queried("", "?limit=1", "?limit=2&page_token="+httpserver.PageToken("page:a:1"), "?prefix=secret:", "?prefix=%3D", "?page_token="+httpserver.PageToken("r")),
	"GET /v1/counters/{name}": {{name: "secret:x"}, {name: "page:a:1"}, {name: "=hid:x"}},
	"GET /v1/watch":           queried("?prefix=", "?prefix=secret:", "?prefix=&limit=1", "?counter=page:a:1", "?counter=secret:x", "?group=hid:x"),
	"GET /v1/series":          queried("?counter=page:a:1&step=1y&from=2001-01-01&to=2100-01-01", "?counter=secret:x&step=1y&from=2001-01-01&to=2100-01-01", "?group=hid:x"),
	"GET /v1/top":             boardsOf(),
	"GET /v1/rank":            boards,
	"GET /v1/overview":        everybody(),
	"GET /metrics/counters":   queried("?match=*", "?match=secret:x", "?match=*&limit=1", "?match=page:*&match=secret:*"),

	"PATCH /v1/counters/{name}":  {{name: "secret:x", contentType: "application/json", body: `{"shards":1}`}, {name: "page:a:1", contentType: "application/json", body: `{"shards":1}`}},
	"DELETE /v1/counters/{name}": {{name: "secret:x"}, {name: "page:del"}},
	"POST /v1/reset":             sent(`{"counter":"secret:x","id":"r"}`, `{"counter":"page:r","id":"r"}`),

	"GET /v1/indexes": everybody(),
	"POST /v1/indexes": sent(
		`{"name":"x","match":"secret:{x}","group":"page:{x}"}`, `{"name":"x","match":"{x}","group":"x:{x}"}`, `{"name":"x","match":"page:x:{x}","group":"page:{x}"}`),
	"DELETE /v1/indexes": {{query: "?name=hidden"}, {query: "?name=all"}, {as: "groups", query: "?name=hidden"}, {as: "one", query: "?name=shops"}, {as: "groups", query: "?name=sites"}},

	"POST /v1/sequences/next": sent(`{"sequence":"secret:s"}`, `{"sequence":"page:s","id":"n"}`),
	"GET /v1/sequences":       queried("?sequence=secret:s", "?sequence=page:s"),
	"DELETE /v1/sequences":    queried("?sequence=secret:s", "?sequence=page:s"),

	"GET /v1/dead-letters/{name}": {{name: "page:a"}},

	"GET /v1/journal": queried("?counter=secret:x", "?counter=page:a:1"),

	"GET /v1/shards": queried("?counter=secret:x", "?counter=page:a:1"),

	"GET /badge/{name}": {{name: "secret:x.json"}, {name: "page:a:1.json"}, {name: "page:a:1.svg"}},
	"GET /healthz":      {{}},
	"GET /readyz":       {}, // it may differ by chance
	"GET /openapi.json": {{}},
}

// callers are the tokens of a world, each with all scopes.
var callers = []auth.Token{
	{Name: "root"}, {Name: "", Prefixes: []string{"page:"}}, {Name: "groups", Prefixes: []string{"=site:"}},
	{Name: "one", Prefixes: []string{"shop:a:"}}, {Name: "group", Prefixes: []string{"=shop:a"}},
}

// A world is a countmill with rows that callers may read and, if it has a secret, with rows that they may not.
type world struct {
	*running
	secrets map[string]string // of the callers, by name
}

func newWorld(t *testing.T, secret bool) *world {
	t.Helper()
	var tokens []auth.Token
	for _, c := range callers {
		tokens = append(tokens, auth.Token{Name: "t" + c.Name, Scopes: auth.Scopes(), Prefixes: c.Prefixes})
	}
	file, made := authtest.File(t, tokens...)
	w := &world{startWith(t, Config{
		Tokens: file, Aggregator: aggregator.Config{HeartbeatEvery: time.Second}, Reader: reader.Config{LagEvery: 100 * time.Millisecond},
	}), make(map[string]string)}
	for i, c := range callers {
		w.secrets[c.Name] = made[i]
	}
	w.fill(t, secret)
	return w
}

// fill makes the same rules in each world. A half of each counter is older than they are.
func (w *world) fill(t *testing.T, secret bool) {
	t.Helper()
	root := bearer(w.secrets["root"])
	w.waitReady(t)
	rows, n := `{"counter":"page:a:1","delta":5},{"counter":"page:a:2","delta":7},{"counter":"page:del"},{"counter":"page:r"},{"counter":"shop:a:1"}`, 5
	if secret {
		rows, n = rows+`,{"counter":"secret:x","delta":798628874},{"counter":"secret:y","delta":3},{"counter":"shop:b:1","delta":6}`, n+3
		w.call(t, "POST", "/v1/sequences/next", `{"sequence":"secret:s"}`, root...)
	}
	w.incr(t, "["+rows+"]", root...)
	for _, rule := range [][2]string{
		{"rules/series", `{"pattern":"*","keep":"1m:6h,15m:400d"}`}, {"rules/series", `{"pattern":"=*","keep":"1m:6h,15m:400d"}`}, {"rules/journal", `{"pattern":"*","keep":"400d"}`},
		{"indexes", sites}, {"indexes", `{"name":"shops","match":"shop:{s}:*","group":"shop:{s}"}`}, {"indexes", `{"name":"all","match":"{t}:*","group":"tot:{t}"}`}, {"indexes", `{"name":"hidden","match":"secret:{x}","group":"hid:{x}"}`},
	} {
		path := "/v1/" + rule[0]
		if status, text := w.call(t, "POST", path, rule[1], root...); status != 200 {
			t.Fatalf("POST %s %s: got %d %s", path, rule[1], status, text)
		}
	}
	w.poll(t, "serving", func() bool {
		_, text := w.call(t, "GET", "/v1/indexes", "", root...)
		return strings.Count(text, `"serving"`) == 4
	})
	w.incr(t, "["+rows+"]", root...)
	w.poll(t, "seen by heartbeats", func() bool {
		_, text := w.call(t, "GET", "/v1/overview", "", root...)
		return strings.Contains(text, fmt.Sprintf(`"since_start":{"increments":%d,`, 2*n)) && !strings.Contains(text, `"increments_per_second":null`)
	})
}

// answer is status and body of an answer, and of a stream the first event, without what differs by chance. A stream goes on until the
// context ends.
func (w *world) answer(ctx context.Context, t *testing.T, route httpserver.Route, q ask) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, route.Method, w.url+pathOf(route, q.name)+q.query, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.secrets[q.as])
	if q.contentType != "" {
		req.Header.Set("Content-Type", q.contentType)
	}
	res, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, func() { res.Body.Close() })
	body := bufio.NewReader(res.Body)
	if res.Header.Get("Content-Type") == "text/event-stream" {
		event, err := body.ReadString('\n')
		data, err2 := body.ReadString('\n')
		if err != nil || err2 != nil {
			t.Fatalf("%s %s%s: %v, %v", route.Method, route.Pattern, q.query, err, err2)
		}
		return fmt.Sprint(res.StatusCode, " ", byChance.ReplaceAllString(event+data, "?"))
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(res.StatusCode, " ", byChance.ReplaceAllString(string(text), "?"))
}

// byChance are moments, random keys, and what sources names beside rows.
var byChance = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|"(lag|status|aggregators|version|receipt|key|part|next|ranges|ranges_done)":[^,}]+|_seconds [0-9.e+-]+|counted_as_of[^}]*`)

// An answer does not depend on rows that its caller has no right to.
func TestRightsFollowTheData(t *testing.T) {
	t.Parallel()
	with, without := newWorld(t, true), newWorld(t, false)
	routes := make(map[string]httpserver.Route)
	for _, route := range api.Routes() {
		name := route.Method + " " + route.Pattern
		routes[name] = route
		if whole := !route.Need.ForAnyone() && !route.Need.PerCounter(); !whole && asks[name] == nil {
			t.Errorf("%s: add requests to asks that its rows would answer", name)
		}
	}
	for _, name := range readsFirst(slices.Collect(maps.Keys(asks))) {
		route, ok := routes[name]
		if !ok {
			t.Errorf("there is no operation %s", name)
			continue
		}
		noticed := route.Method != http.MethodGet || route.Need.ForAnyone() || !route.Need.PerCounter()
		for _, q := range asks[name] {
			notices := checkAsk(t, with, without, route, q)
			noticed = noticed || notices
			if got := with.asOfNoIndex(t, route, q); got != "" {
				t.Errorf("%s%s as %q: %s", name, q.query, q.as, got)
			}
		}
		if !noticed {
			t.Errorf("%s: a caller with all rights gets the same answers in both worlds: ask for something that depends on the secret rows", name)
		}
	}
}

// checkAsk compares the answers of two worlds to a caller. It reports whether those to a caller with all rights differ, who reads
// first, and keeps its streams meanwhile.
func checkAsk(t *testing.T, with, without *world, route httpserver.Route, q ask) (notices bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if route.Method == http.MethodGet {
		all := q
		all.as = "root"
		notices = with.answer(ctx, t, route, all) != without.answer(ctx, t, route, all)
	}
	if got, want := with.answer(ctx, t, route, q), without.answer(ctx, t, route, q); got != want {
		t.Errorf("%s %s%s %s as %q: got\n%s, and without the secret rows\n%s", route.Method, route.Pattern, q.query, q.body, q.as, got, want)
	}
	return notices
}

var indexOfAsk = regexp.MustCompile(`index=(\w+)`)

// asOfNoIndex compares a refusal with that for an index which does not exist, and returns the difference.
func (w *world) asOfNoIndex(t *testing.T, route httpserver.Route, q ask) string {
	t.Helper()
	m := indexOfAsk.FindStringSubmatch(q.query)
	if m == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := w.answer(ctx, t, route, q)
	q.query = indexOfAsk.ReplaceAllLiteralString(q.query, "index=nobody")
	if want := strings.ReplaceAll(w.answer(ctx, t, route, q), "nobody", m[1]); got != want && !strings.HasPrefix(got, "200 ") {
		return fmt.Sprintf("got %s, and for an index that does not exist %s", got, want)
	}
	return ""
}

// readsFirst sorts operations: those that change something come last.
func readsFirst(names []string) []string {
	slices.SortFunc(names, func(a, b string) int {
		if read := strings.HasPrefix(a, "GET "); read != strings.HasPrefix(b, "GET ") {
			return map[bool]int{true: -1, false: 1}[read]
		}
		return strings.Compare(a, b)
	})
	return names
}
