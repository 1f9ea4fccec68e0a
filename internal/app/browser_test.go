package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/testing/longtest"
)

// script is a page that does the same as a real one: it counts with a key, twice, reads the total, and follows
// it. It reports the results to its own server. The image arrives when that is done: until
// then the browser waits.
const script = `<!doctype html><title>page</title><img src="/wait"><script>
const server = "%s", token = "%s";
const headers = {Authorization: "Bearer " + token};
let said = [];
const say = text => said.push(text);
const counted = () => fetch(server + "/v1/increments", {method: "POST", body: '{"counter":"page:a"}',
	headers: {...headers, "Content-Type": "application/json", "Idempotency-Key": "k"}});
(async () => {
	try {
		say("counted " + (await counted()).status + " " + (await counted()).status);
		say("total " + (await (await fetch(server + "/v1/counters/page:a", {headers})).json()).total);
		say("refused " + (await fetch(server + "/v1/counters/page:a")).status);
		const stream = (await fetch(server + "/v1/watch?counter=page:a", {headers})).body.getReader();
		say("stream " + new TextDecoder().decode((await stream.read()).value).split("\n")[0]);
		await stream.cancel();
	} catch (e) { say("blocked " + e.message) }
	await fetch("/said", {method: "POST", body: said.join("\n")});
})();
</script>`

// A real browser, if there is one, can call with --cors-origin, and cannot without.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium; the headers are tested without it")
	}
	longtest.Only(t, "starts a browser")
	tokens, secrets := authtest.File(t, auth.Token{Name: "page", Prefixes: []string{"page:"}, Scopes: []auth.Scope{auth.Publish, auth.Read}})
	site := newSite(t)
	const worked = "counted 202 202\ntotal 1\nrefused 401\nstream event: totals"
	for _, tc := range []struct {
		origins []string
		want    string
	}{
		{[]string{site.URL}, worked},
		{[]string{"*"}, worked},
		{[]string{"https://other.example"}, "blocked Failed to fetch"},
		{nil, "blocked Failed to fetch"},
	} {
		a, err := New(Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir()), Tokens: tokens, CORSOrigins: tc.origins})
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, a)
		r.poll(t, "ready", func() bool { status, _ := r.call(t, "GET", "/readyz", ""); return status == 200 })
		if got := site.visit(t, browser, fmt.Sprintf(script, r.url, secrets[0])); got != tc.want {
			t.Errorf("--cors-origin %q: the page says %q, want %q", tc.origins, got, tc.want)
		}
		r.stop(t)
	}
}

// A site serves one page and receives its report.
type site struct {
	*httptest.Server
	page string
	said chan string
	wait chan struct{} // closed when the page has spoken
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, s.page)
		case "/said":
			text, _ := io.ReadAll(r.Body)
			s.said <- string(text)
			close(s.wait)
		case "/wait":
			select {
			case <-s.wait:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// visit opens the page and returns its report.
func (s *site) visit(t *testing.T, browser, page string) string {
	t.Helper()
	s.page, s.said, s.wait = page, make(chan string, 1), make(chan struct{})
	dir, err := os.MkdirTemp("", "countmill-browser-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) // its processes may still write as they end: files that are left do not fail the test
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+dir, "--dump-dom", s.URL+"/")
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", browser, err, out)
	}
	select {
	case said := <-s.said:
		return said
	default:
		return "nothing"
	}
}
