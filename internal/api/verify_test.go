package api_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

func verifying(t *testing.T, v *admin.Verifier) surface {
	t.Helper()
	return ask(t, api.Services{Verifier: v}, api.Config{})
}

// A rig is a verifier of a fake store.
type rig struct {
	*admin.Verifier
	store *protocoltest.Store
}

func newRig() *rig {
	st := protocoltest.New(protocoltest.Options{})
	return &rig{admin.NewVerifier(st, st), st}
}

func (r *rig) fold(t *testing.T, counter string, record int, shards ...int) {
	t.Helper()
	if err := r.store.Grow(t.Context(), []store.Growth{{Counter: counter, Shards: record}}); err != nil {
		t.Fatal(err)
	}
	for _, n := range shards {
		if _, err := r.store.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta(counter, n, int64(n+1))}}); err != nil {
			t.Fatal(err)
		}
	}
}

// onePage is a store with the same shards on each page.
type onePage struct{ page store.ShardPage }

func (o onePage) ShardsOf(context.Context, string) (store.ShardPage, error) { return o.page, nil }
func (o onePage) ShardPage(context.Context, string, string, int) (store.ShardPage, error) {
	return o.page, nil
}

func TestShardsOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.fold(t, "a/b", 2, 0, 1, 2)
	s := verifying(t, r.Verifier)
	s.want(t, "GET", "/v1/shards?counter=a/b", "", 200, `"exists":true,"shards":2,"counts":[{"shard":0,"count":1,"updated":"`)
	s.want(t, "GET", "/v1/shards?counter=a/b", "", 200, `"problem":"beyond"}]}`)
	s.want(t, "GET", "/v1/shards?counter=nobody", "", 200, `"exists":false,"shards":0,"counts":[]}`)
	odd := onePage{store.ShardPage{At: asOf, Records: map[string]int{"a": 9}, Shards: []store.Shard{
		{Counter: "a", Count: int128.Int{Hi: 1}, Updated: asOf.Add(-time.Minute)}, {Counter: "a", Number: 1, Bad: "cut off"},
	}}}
	verifying(t, admin.NewVerifier(odd, nil)).want(t, "GET", "/v1/shards?counter=a", "", 200,
		`{"counter":"a","as_of":"2026-11-21T04:04:03.120000Z","exists":true,"shards":9,"counts":[{"shard":0,"count":null,"updated":"2026-11-21T04:03:03.120000Z"},{"shard":1,"count":null,"problem":"unreadable"}]}`)
}

func TestVerifyOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.fold(t, "a", 1, 0, 1)
	r.fold(t, "b", 1, 0)
	s := verifying(t, r.Verifier)
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
			status, text, _ := s.call(t, method, path, body)
			if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 {
				t.Fatalf("got %d %s", status, text)
			}
			for _, p := range got.Problems {
				kinds += p.Kind + " " + p.Counter + " "
				if p.Fixed != fix || p.Shard == nil {
					t.Errorf("got %s", text)
				}
			}
			if token = got.Next; token == "" {
				return kinds
			}
		}
	}
	if got := all(false); got != "beyond a " {
		t.Errorf("found %s", got)
	}
	if got := all(true); got != "beyond a " {
		t.Errorf("repaired %s", got)
	}
	for path, want := range map[string]string{
		"?page_token=": "page_token", "?page_token=x": "page_token", "?page_token=MQ": "page_token", "?page_token=MXg": "page_token", "?prefix=%ff": "prefix", "?prefix=" + strings.Repeat("x", 501): "prefix",
	} {
		s.want(t, "GET", "/v1/verify"+path, "", 400, want)
	}
	for body, want := range map[string]string{
		`{"limit":0}`: "limit", `{"limit":1001}`: "limit", `{"page_token":"x"}`: "page_token",
	} {
		s.want(t, "POST", "/v1/verify", body, 400, want)
	}
	s.want(t, "POST", "/v1/verify", `{}`, 200, `"problems":[]`)
	s.want(t, "POST", "/v1/verify", strings.Repeat(" ", 65<<10), 413, "")
}
