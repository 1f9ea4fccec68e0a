package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fakeServer answers with one script after another, the last for ever, and remembers the
// requests.
type fakeServer struct {
	*httptest.Server
	mu     sync.Mutex
	script []http.HandlerFunc
	keys   []string
	bodies []string
	paths  []string
}

func newFakeServer(t *testing.T, script ...http.HandlerFunc) *fakeServer {
	t.Helper()
	f := &fakeServer{script: script}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.keys = append(f.keys, r.Header.Get("Idempotency-Key"))
	f.bodies = append(f.bodies, strings.TrimSpace(string(body)))
	f.paths = append(f.paths, r.URL.RequestURI())
	h := f.script[0]
	if len(f.script) > 1 {
		f.script = f.script[1:]
	}
	f.mu.Unlock()
	h(w, r)
}

// answer is a countmill's: an object with an error and without a type gets a type.
func answer(status int, body string) http.HandlerFunc {
	var problem map[string]any
	if status >= 400 && json.Unmarshal([]byte(body), &problem) == nil && problem["type"] == nil {
		problem["type"] = "urn:countmill:problem:some-word"
		text, _ := json.Marshal(problem)
		body = string(text)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func cut(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		conn.Close()
	}
}

const accepted = `{"accepted":1}` + "\n"

func TestIncrSendsWhatItWasTold(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(202, accepted))
	env := []string{"COUNTMILL_SERVER=" + strings.TrimPrefix(f.URL, "http://")}
	got := try(t, env, "incr", "a//b", "2", "--id", "i", "--key", "k", "--time", "2026-01-02T03:04:05Z", "--json")
	if got != (result{0, accepted, ""}) {
		t.Errorf("got %+v", got)
	}
	if want := `{"counter":"a//b","delta":2,"id":"i","time":"2026-01-02T03:04:05Z"}`; f.bodies[0] != want || f.keys[0] != "k" {
		t.Errorf("sent %s with key %q, want %s with key k", f.bodies[0], f.keys[0], want)
	}
	if try(t, env, "incr", "a", "--id", "i"); f.keys[1] != "" {
		t.Errorf("an increment with an id has the key %q too", f.keys[1])
	}
}

func TestIncrSaysWhetherItWasCounted(t *testing.T) {
	t.Parallel()
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, test := range map[string]struct {
		script []http.HandlerFunc
		want   string
		tries  int
	}{
		"refused":      {[]http.HandlerFunc{answer(400, `{"detail":"delta is 0"}`)}, "not counted: delta is 0 (HTTP 400)", 1},
		"key reused":   {[]http.HandlerFunc{answer(422, `{"detail":"id reused"}`)}, "not counted: id reused", 1},
		"full disk":    {[]http.HandlerFunc{answer(507, `{"detail":"full"}`)}, "not counted: full (HTTP 507)", 2},
		"id reused":    {[]http.HandlerFunc{answer(504, `{}`), answer(422, `{"type":"urn:countmill:problem:ids-reused","detail":"taken","conflicts":[{"position":0,"id":"x"}]}`)}, "not counted: taken", 2},
		"unavailable":  {[]http.HandlerFunc{answer(503, `{"detail":"away"}`)}, "not counted: away (HTTP 503)", 2},
		"unknown":      {[]http.HandlerFunc{answer(504, `{"detail":"who knows"}`)}, "maybe counted: who knows (HTTP 504); to repeat it safely add --key ", 2},
		"unknown once": {[]http.HandlerFunc{answer(504, `{}`), answer(503, `{"detail":"away"}`)}, "maybe counted: an earlier try was maybe counted; then: away", 2},
		"internal":     {[]http.HandlerFunc{answer(500, `{}`)}, "maybe counted", 2},
		"cut":          {[]http.HandlerFunc{cut}, "maybe counted", 2},
		"silent":       {[]http.HandlerFunc{hang}, "did not answer in time", 2},
		"no countmill": {[]http.HandlerFunc{answer(404, "<html>")}, "maybe counted: another program answers, a proxy or no countmill (HTTP 404); to repeat it safely add --key ", 1},
		"proxy":        {[]http.HandlerFunc{answer(503, "<html>")}, "maybe counted: another program answers, a proxy or no countmill (HTTP 503); to repeat it safely add --key ", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeServer(t, test.script...)
			timeout := "5m" // its tries end before
			if name == "silent" {
				timeout = "10s" // for two of half of that
			}
			try(t, nil, "incr", "a", "--server", f.URL, "--timeout", timeout).wantError(t, 1, test.want)
			f.mu.Lock()
			defer f.mu.Unlock()
			if len(f.keys) < test.tries || test.tries == 1 && len(f.keys) != 1 {
				t.Errorf("got %d tries, want %d (2: or more)", len(f.keys), test.tries)
			}
		})
	}
}

func TestVerbsSayHowToStartAServer(t *testing.T) {
	t.Parallel()
	// A low port: a test beside this one may get a port that was free a moment ago.
	const addr = "127.0.0.1:1"
	for _, args := range [][]string{{"incr", "a"}, {"get", "a"}, {"watch", "a"}} {
		args = append(args, "--server", addr, "--timeout", "5m") // which none of them takes
		try(t, nil, args...).wantError(t, 1, "start one with `countmill up`")
	}
	try(t, nil, "incr", "a", "--server", addr, "--timeout", "5m").wantError(t, 1, "not counted")
}

func TestGet(t *testing.T) {
	t.Parallel()
	const totals = `{"totals":[{"counter":"a","total":9223372036854775807,"exists":true},{"counter":"a b","total":-1,"exists":true}],"lag":null}`
	f := newFakeServer(t, answer(200, totals))
	got := try(t, nil, "get", "a", "a b", "--server", f.URL, "--max-staleness", "2s")
	if want := (result{0, "9223372036854775807\ta\n-1\ta b\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if f.paths[0] != "/v1/totals?max_staleness=2s" || f.bodies[0] != `{"counters":["a","a b"]}` {
		t.Errorf("asked %s with %s", f.paths[0], f.bodies[0])
	}
	one := newFakeServer(t, answer(200, `{"totals":[{"counter":"a","total":7}]}`))
	if got := try(t, nil, "get", "a", "--server", one.URL); got.out != "7\n" {
		t.Errorf("one name: got %+v, want 7", got)
	}
	over := newFakeServer(t, answer(200, `{"totals":[{"counter":"a","total":7},{"counter":"o","total":null,"error":"urn:countmill:problem:overflow"}]}`))
	if got := try(t, nil, "get", "a", "o", "--server", over.URL); got.code != 1 || got.out != "7\ta\noverflow\to\n" || !strings.Contains(got.errOut, `does not fit 64 bits: counter "o"`) {
		t.Errorf("a total that does not fit: got %+v", got)
	}
	over = newFakeServer(t, answer(200, `{"totals":[{"counter":"o","total":null,"error":"urn:countmill:problem:overflow"}]}`))
	if got := try(t, nil, "get", "o", "--server", over.URL); got.code != 1 || got.out != "" {
		t.Errorf("only a total that does not fit: got %+v", got)
	}
	try(t, nil, "get", "a", "b", "--server", one.URL).wantError(t, 1, "another number of totals than was asked for")
	html := newFakeServer(t, answer(200, "<html>"))
	try(t, nil, "get", "a", "--server", html.URL).wantError(t, 1, "is that a countmill?")
}

func TestWatchPrintsChanges(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, total := range []int{1, 1, 2} {
			event, _ := json.Marshal(map[string]any{"totals": []any{map[string]any{"counter": "a", "total": total}}})
			fmt.Fprintf(w, ": still here\n\nevent: totals\ndata: %s\n\n", event)
		}
		fmt.Fprint(w, "event: problem\ndata: {\"status\":503,\"detail\":\"away\"}\n\n")
	})
	got := try(t, nil, "watch", "a", "--server", f.URL)
	if got.code != 1 || got.out != "1\ta\n2\ta\n" || !strings.Contains(got.errOut, "ended the stream") || !strings.Contains(got.errOut, "away (HTTP 503); still watching") {
		t.Errorf("got %+v", got)
	}
	if got := try(t, nil, "watch", "a", "--json", "--server", f.URL); strings.Count(got.out, `"total":`) != 3 {
		t.Errorf("--json: got %q, want three events", got.out)
	}
}

func TestWatchPrefixPrintsChanges(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, data := range []string{
			`{"totals":[{"counter":"a","total":1},{"counter":"b\u202e","total":2}],"truncated":true}`,
			`{"totals":[{"counter":"a","total":3}],"truncated":true}`,
			`{"totals":[{"counter":"a","total":3}],"removed":["b\u202e"]}`,
			`{"totals":[],"lag":1}`,
		} {
			fmt.Fprintf(w, "event: totals\ndata: %s\n\n", data)
		}
	})
	got := try(t, nil, "watch", "--prefix", "a&", "--limit", "7", "--server", f.URL)
	if want := "1\ta\n2\tb\\u202E\n3\ta\n"; got.out != want {
		t.Errorf("got %q, want %q", got.out, want)
	}
	if strings.Count(got.errOut, "more counters begin with the prefix (--limit 7)") != 1 || !strings.Contains(got.errOut, `b\u202E is watched no longer`) {
		t.Errorf("standard error has %q, want a line for the limit and one for b", got.errOut)
	}
	if want := "/v1/watch?limit=7&prefix=a%26"; f.paths[0] != want {
		t.Errorf("asked for %q, want %q", f.paths[0], want)
	}
	if try(t, nil, "watch", "--prefix", "", "--server", f.URL); f.paths[1] != "/v1/watch?limit=100&prefix=" {
		t.Errorf("asked for %q, want all counters", f.paths[1])
	}
}

// COUNTMILL_TIMEOUT bounds the wait for the server's answer. The stream that follows may be silent for
// longer.
func TestWatchOutlivesItsTimeout(t *testing.T) {
	t.Parallel()
	const env = "COUNTMILL_TIMEOUT=2s"
	f := newFakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		select {
		case <-time.After(4 * time.Second): // no answer: an answered call
		case <-r.Context().Done():
			return
		}
		fmt.Fprint(w, "event: totals\ndata: {\"totals\":[{\"counter\":\"a\",\"total\":7}]}\n\n")
	})
	if got := try(t, []string{env}, "watch", "a", "--server", f.URL); got.out != "7\ta\n" || !strings.Contains(got.errOut, "ended the stream") {
		t.Errorf("silent for longer than its time-out: got %+v", got)
	}
	hang := newFakeServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	begin := time.Now()
	try(t, []string{"COUNTMILL_TIMEOUT=100ms"}, "watch", "a", "--server", hang.URL).wantError(t, 1, "did not answer in time (--timeout 100ms)")
	if took := time.Since(begin); took > 25*time.Second { // the longest silence is 45s
		t.Errorf("no answer within 100ms: it ended after %s", took)
	}
	try(t, []string{"COUNTMILL_TIMEOUT=100ms"}, "get", "a", "--server", hang.URL).wantError(t, 1, "did not answer in time (--timeout 100ms)")
}

func TestChangesAskForWhatTheyWereTold(t *testing.T) {
	t.Parallel()
	const removed = `{"counter":"a","removed":-9007199254740993,"as_of":"2026-01-02T03:04:05.000000Z","exists":true}` + "\n"
	for _, test := range []struct {
		args       []string
		answer     string
		path, body string
		want       string
	}{
		{[]string{"grow", "a/b", "40"}, `{"counter":"a/b","shards":40}`, "/v1/counters/a%2Fb", `{"shards":40}`, "a/b has 40 shards\n"},
		{[]string{"grow", "..", "40", "--json"}, `{"counter":".."}`, "/v1/counters/%2E%2E", `{"shards":40}`, `{"counter":".."}`},
		{[]string{"reset", "a", "--id", "x"}, removed, "/v1/reset", `{"counter":"a","id":"x"}`, "-9007199254740993\n"},
		{[]string{"reset", "a", "--id", "x", "--json"}, removed, "/v1/reset", `{"counter":"a","id":"x"}`, removed},
		{[]string{"next", "user:42", "--id", "x"}, `{"value":7}`, "/v1/sequences/next", `{"sequence":"user:42","id":"x"}`, "7\n"},
		{[]string{"next", "a", "--id", "x", "--count", "3"}, `{"first":8,"last":10}`, "/v1/sequences/next", `{"sequence":"a","id":"x","count":3}`, "8 10\n"},
		{[]string{"next", "a", "--id", "x", "--json"}, "{\"value\":7}\n", "/v1/sequences/next", `{"sequence":"a","id":"x"}`, "{\"value\":7}\n"},
		{[]string{"delete", "é ?"}, strings.Replace(removed, `"a"`, `"é ?"`, 1), "/v1/counters/%C3%A9%20%3F", ``, "-9007199254740993\n"},
	} {
		f := newFakeServer(t, answer(200, test.answer))
		got := try(t, nil, append(test.args, "--server", f.URL)...)
		if got != (result{0, test.want, ""}) || f.paths[0] != test.path || f.bodies[0] != test.body {
			t.Errorf("%q: got %+v, asked for %s with %s; want %q, %s and %s", test.args, got, f.paths[0], f.bodies[0], test.want, test.path, test.body)
		}
	}
}

func TestChangesSayWhetherTheyWereDone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args   []string
		script http.HandlerFunc
		want   string
	}{
		{[]string{"grow", "a", "5"}, answer(409, `{"detail":"counter \"a\" has 20 shards"}`), `counter "a" has 20 shards (HTTP 409)`},
		{[]string{"reset", "a", "--id", "x"}, answer(503, `{"detail":"away"}`), "not reset: away (HTTP 503)"},
		{[]string{"reset", "a", "--id", "x"}, answer(504, `{"detail":"maybe"}`), "maybe reset: maybe (HTTP 504); repeat it with --id x"},
		{[]string{"reset", "a", "--id", "x"}, cut, "repeat it with --id x"},
		{[]string{"reset", "a"}, answer(500, `{"type":"urn:countmill:problem:overflow","detail":"no number"}`), "not reset: no number"},
		{[]string{"reset", "a", "--id", "x"}, answer(503, "<html>"), "maybe reset: another program answers, a proxy or no countmill (HTTP 503); repeat it with --id x"},
		{[]string{"delete", "a"}, answer(400, `{"detail":"bad"}`), "not deleted: bad (HTTP 400)"},
		{[]string{"delete", "a"}, answer(500, `{"detail":"a fault"}`), "maybe deleted: a fault (HTTP 500); repeat it"},
		{[]string{"delete", "a"}, answer(200, `{}`), "it has no as_of; is that a countmill?"},
	} {
		f := newFakeServer(t, test.script)
		try(t, nil, append(test.args, "--server", f.URL)...).wantError(t, 1, test.want)
	}
	f := newFakeServer(t, answer(504, "{}"))
	try(t, nil, "reset", "a", "--server", f.URL)
	try(t, nil, "reset", "a", "--server", f.URL)
	if f.bodies[0] == f.bodies[1] || !strings.Contains(f.bodies[0], `"id":"`) {
		t.Errorf("two resets without --id sent %s and %s, want two ids", f.bodies[0], f.bodies[1])
	}
}
