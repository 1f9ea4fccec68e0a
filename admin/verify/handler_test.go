package verify_test

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/admin/verify"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/store"
)

// A surface is the HTTP half, held to the document.
type surface struct {
	*api.Router
	doc *apitest.Document
}

func serve(t *testing.T, v *verify.Verifier) surface {
	t.Helper()
	rt := api.NewRouter(nil)
	verify.NewHandler(v, verify.HandlerConfig{}).Register(rt)
	doc := apitest.Load(t)
	doc.CheckRoutes(t, rt.Routes(), "care")
	return surface{rt, doc}
}

func (s surface) call(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	s.ServeHTTP(rec, req)
	pattern, _, _ := strings.Cut(path, "?")
	s.doc.CheckAnswer(t, method, pattern, rec.Code, rec.Header(), rec.Body.Bytes())
	return rec.Code, strings.TrimSpace(rec.Body.String())
}

func (s surface) want(t *testing.T, method, path, body string, status int, text string) {
	t.Helper()
	if got, answer := s.call(t, method, path, body); got != status || !strings.Contains(answer, text) {
		t.Errorf("%s %s %.60s: got %d %s, want %d with %s", method, path, body, got, answer, status, text)
	}
}

func TestShardsOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.fold(t, "a/b", 2, 0, 1, 2)
	s := serve(t, r.Verifier)
	s.want(t, "GET", "/v1/shards?counter=a/b", "", 200, `"exists":true,"shards":2,"counts":[{"shard":0,"count":1},{"shard":1,"count":2},{"shard":2,"count":3,"problem":"beyond"}]}`)
	s.want(t, "GET", "/v1/shards?counter=nobody", "", 200, `"exists":false,"shards":0,"counts":[]}`)
	s.want(t, "GET", "/v1/shards", "", 400, "counter is empty")
	s.want(t, "GET", "/v1/shards?counter=a&counter=b", "", 400, "counter stands twice")
	odd := onePage{store.ShardPage{At: asOf, Records: map[string]int{"a": 9}, Shards: []store.Shard{
		{Counter: "a", Overflow: true, Count: 1, Updated: asOf.Add(-time.Minute)}, {Counter: "a", Number: 1, Bad: "cut off"},
	}}}
	serve(t, verify.New(odd, raises{}, nil)).want(t, "GET", "/v1/shards?counter=a", "", 200,
		`{"counter":"a","as_of":"2026-11-21T05:04:03.120000Z","exists":true,"shards":9,"counts":[{"shard":0,"count":null,"updated":"2026-11-21T05:03:03.120000Z"},{"shard":1,"count":null,"problem":"unreadable"}]}`)
}

func TestVerifyOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.fold(t, "a", 1, 0, 1)
	r.fold(t, "b", 1, 0)
	r.totals.past["a"] = 3
	r.totals.cached["a"] = verify.Cached{Counter: "a", Total: 4, AsOf: asOf}
	s := serve(t, r.Verifier)
	type answer struct {
		Problems []struct {
			Kind, Counter string
			Shard         *int
			Fixed         bool
		}
		Next string `json:"next_page_token"`
	}
	all := func(fix bool) (kinds string) {
		for token := ""; ; {
			method, path, body := "GET", "/v1/verify?limit=1&page_token="+url.QueryEscape(token), ""
			if token == "" {
				path = "/v1/verify?limit=1"
			}
			if fix {
				text, _ := json.Marshal(map[string]any{"limit": 1, "page_token": token})
				method, path, body = "POST", "/v1/verify", string(text)
			}
			var got answer
			status, text := s.call(t, method, path, body)
			if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 {
				t.Fatalf("got %d %s", status, text)
			}
			for _, p := range got.Problems {
				kinds += p.Kind + " " + p.Counter + " "
				if p.Fixed != fix || (p.Shard == nil) != (p.Kind == "cached") {
					t.Errorf("got %s", text)
				}
			}
			if token = got.Next; token == "" {
				return kinds
			}
		}
	}
	if got := all(false); got != "beyond a cached a " {
		t.Errorf("found %s", got)
	}
	if got := all(true); got != "beyond a cached a " || len(r.totals.dropped) != 1 {
		t.Errorf("mended %s, dropped %q", got, r.totals.dropped)
	}
	for path, want := range map[string]string{
		"?limit=0": "limit", "?limit=1001": "limit", "?page_token=": "page_token", "?page_token=x": "page_token", "?page_token=MQ": "page_token",
		"?page_token=MXg": "page_token", "?x=1": "not a parameter", "?prefix=%ff": "prefix", "?prefix=" + strings.Repeat("x", 501): "prefix",
	} {
		s.want(t, "GET", "/v1/verify"+path, "", 400, want)
	}
	for body, want := range map[string]string{
		`{"limit":0}`: "limit", `{"limit":1001}`: "limit", `{"x":1}`: "body", `[]`: "body", `{"page_token":"x"}`: "page_token", `{"prefix":1}`: "body",
	} {
		s.want(t, "POST", "/v1/verify", body, 400, want)
	}
	s.want(t, "POST", "/v1/verify", `{}`, 200, `"problems":[]`)
	s.want(t, "POST", "/v1/verify", strings.Repeat(" ", 65<<10), 413, "")
	s.want(t, "POST", "/v1/verify", "", 415, "")
}
