package httpserver

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
)

// guarded is a router with a route of each kind, and tokens by their names.
func guarded(t *testing.T, log *slog.Logger) (*Router, *Refusals, map[string]string) {
	t.Helper()
	list := []auth.Token{
		{Name: "publish", Scopes: []auth.Scope{auth.Publish}},
		{Name: "read", Scopes: []auth.Scope{auth.Read}},
		{Name: "pages", Scopes: []auth.Scope{auth.Read, auth.Admin}, Prefixes: []string{"page:"}},
		{Name: "admin", Scopes: []auth.Scope{auth.Admin}},
		{Name: "old", Scopes: auth.Scopes(), Expires: time.Unix(1, 0)},
	}
	tokens, made := authtest.Open(t, list...)
	secrets := make(map[string]string)
	for i, token := range list {
		secrets[token.Name] = made[i]
	}
	rt, refused := NewRouter(log), &Refusals{}
	rt.Guard(tokens, refused)
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s", auth.From(r.Context()).Name)
	})
	rt.Handle("GET", "/open", auth.Anyone, who)
	rt.Handle("GET", "/whole", auth.Whole(auth.Admin), who)
	rt.Handle("GET", "/each", auth.PerCounter(auth.Read), who)
	rt.Handle("GET", "/counters/{name}", auth.PerCounter(auth.Read), who)
	rt.Handle("DELETE", "/counters/{name}", auth.Whole(auth.Admin), who)
	return rt, refused, secrets
}

func ask(h http.Handler, method, path string, authorization ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	r.Header["Authorization"] = authorization
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestGuard(t *testing.T) {
	t.Parallel()
	rt, refused, secrets := guarded(t, nil)
	for _, tc := range []struct {
		method, path, token string
		status              int
		want                string // in the answer, or in the problem's detail
	}{
		{"GET", "/open", "", 200, "hello "},
		{"GET", "/open", "nonsense", 200, "hello "},
		{"GET", "/open", secrets["old"], 200, "hello "},
		{"GET", "/open", secrets["publish"], 200, "hello publish"},
		{"GET", "/each", "", 401, "needs a token"},
		{"GET", "/each", "nonsense", 401, "not known"},
		{"GET", "/each", secrets["old"], 401, "has expired"},
		{"GET", "/each", secrets["read"], 200, "hello read"},
		{"HEAD", "/each", secrets["read"], 200, ""},
		{"HEAD", "/each", secrets["publish"], 403, ""},
		{"HEAD", "/each", "", 401, ""},
		{"GET", "/each", secrets["pages"], 200, "hello pages"},
		{"GET", "/each", secrets["publish"], 403, "needs the scope read"},
		{"GET", "/each", secrets["admin"], 403, "needs the scope read"},
		{"GET", "/whole", secrets["admin"], 200, "hello admin"},
		{"GET", "/whole", secrets["pages"], 403, "it needs a token without --prefix"},
		{"GET", "/whole", secrets["read"], 403, "needs the scope admin"},
		{"GET", "/counters/page:%2Fhome", secrets["pages"], 200, "hello pages"},
		{"GET", "/counters/shop:x", secrets["pages"], 403, `counter "shop:x" is outside`},
		{"GET", "/counters/shop:x", secrets["read"], 200, "hello read"},
		{"DELETE", "/counters/page:x", secrets["pages"], 403, "it needs a token without --prefix"},
		{"DELETE", "/counters/page:x", secrets["admin"], 200, "hello admin"},
		{"POST", "/each", "", 405, "GET, HEAD"},
		{"GET", "/nowhere", "", 404, "no such path"},
	} {
		var header []string
		if tc.token != "" {
			header = []string{"Bearer " + tc.token}
		}
		before := [2]int64{refused.Unauthorized.Load(), refused.Forbidden.Load()}
		res := ask(rt, tc.method, tc.path, header...)
		got := [2]int64{refused.Unauthorized.Load() - before[0], refused.Forbidden.Load() - before[1]}
		if want := map[int][2]int64{401: {1, 0}, 403: {0, 1}}[tc.status]; got != want {
			t.Errorf("%s %s: counted %v, want %v", tc.method, tc.path, got, want)
		}
		if res.StatusCode != tc.status {
			t.Errorf("%s %s as %.12q: got %d, want %d", tc.method, tc.path, tc.token, res.StatusCode, tc.status)
			continue
		}
		var body bytes.Buffer
		body.ReadFrom(res.Body)
		if !strings.Contains(strings.ReplaceAll(body.String(), `\"`, `"`), tc.want) {
			t.Errorf("%s %s as %.12q: got %s, want %q", tc.method, tc.path, tc.token, body.String(), tc.want)
		}
		challenge := res.Header.Get("WWW-Authenticate")
		if scope, ok := strings.CutPrefix(tc.want, "needs the scope "); ok && challenge != `Bearer realm="countmill", error="insufficient_scope", scope="`+scope+`"` {
			t.Errorf("%s %s: 403 with WWW-Authenticate %q", tc.method, tc.path, challenge)
		}
		if says := strings.HasPrefix(challenge, `Bearer realm="countmill"`); tc.status == 401 && !says {
			t.Errorf("%s %s: 401 with WWW-Authenticate %q", tc.method, tc.path, challenge)
		}
	}
}

func TestAuthorizationForms(t *testing.T) {
	t.Parallel()
	rt, _, secrets := guarded(t, nil)
	secret := secrets["read"]
	for _, tc := range []struct {
		header []string
		status int
	}{
		{[]string{"Bearer " + secret}, 200},
		{[]string{"bearer " + secret}, 200},
		{[]string{"BEARER   " + secret}, 200},
		{[]string{"Bearer" + secret}, 401},
		{[]string{secret}, 401},
		{[]string{"Basic " + secret}, 401},
		{[]string{"Bearer " + secret + " x"}, 401},
		{[]string{"Bearer " + secret + "," + secret}, 401},
		{[]string{"Bearer"}, 401},
		{[]string{"Bearer "}, 401},
		{[]string{""}, 401},
		{[]string{"Bearer " + secret, "Bearer " + secret}, 401},
		{[]string{"Bearer " + strings.Repeat("x", 200_000)}, 401},
	} {
		if res := ask(rt, "GET", "/each", tc.header...); res.StatusCode != tc.status {
			t.Errorf("%.80q: got %d, want %d", tc.header, res.StatusCode, tc.status)
		}
	}
	for _, query := range []string{"access_token=", "token=", "authorization=Bearer%20"} {
		if res := ask(rt, "GET", "/each?"+query+secret); res.StatusCode != 401 {
			t.Errorf("a token in the query as %s: got %d, want 401", query, res.StatusCode)
		}
	}
}

// Who changes things is in the log, with the name and never the token.
func TestAdminCallsAreLogged(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	rt, _, secrets := guarded(t, slog.New(slog.NewTextHandler(&logged, nil)))
	ask(rt, "GET", "/each", "Bearer "+secrets["read"])
	ask(rt, "DELETE", "/counters/a", "Bearer "+secrets["read"])
	if logged.Len() > 0 {
		t.Errorf("reads and what is refused are logged: %s", logged.String())
	}
	ask(rt, "DELETE", "/counters/"+secrets["read"], "Bearer "+secrets["admin"])
	if got := logged.String(); !strings.Contains(got, `msg="admin call" caller=admin method=DELETE path=/counters/cmtok_...`) || strings.Contains(got, secrets["admin"]) {
		t.Errorf("got log %s, want the admin call", got)
	}
}
