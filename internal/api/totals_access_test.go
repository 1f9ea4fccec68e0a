package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

// A nameReader lists sorted names as a real reader does, with totals of 1 unless counters
// says otherwise.
type nameReader struct {
	*fakeReader
	names    []string
	lists    atomic.Int64
	overflow map[string]bool
	building map[string]bool // groups
}

func (n *nameReader) ListSince(_ context.Context, prefix, after string, limit int, minAsOf time.Time) (reader.Page, error) {
	var p reader.Page
	n.lists.Add(1)
	last, count := "", 0
	for _, name := range n.names {
		switch {
		case !strings.HasPrefix(name, prefix) || name <= after:
			continue
		case count == limit:
			p.Next = last
			return p, nil
		case n.overflow[name]:
			p.Overflowed = append(p.Overflowed, name)
		default:
			total, ok := n.counters[name]
			if !ok {
				total = 1
			}
			p.Totals = append(p.Totals, reader.Total{Counter: name, Total: total, AsOf: asOf, Source: "store", Shards: 1, Exists: true})
		}
		last, count = name, count+1
	}
	return p, nil
}

// Page by page, a limited caller lists exactly its counters under the prefix, each once and in
// order, with any limit.
func TestListIsLimitedToPrefixes(t *testing.T) {
	t.Parallel()
	n := &nameReader{fakeReader: newFakeOf(nil), names: []string{"a", "app:1", "app:2", "app:3", "b:1", "page", "page:/", "page:/a", "page:/b", "shop:1", "z:1", "z:2"},
		overflow: map[string]bool{"app:3": true, "page:/a": true}}
	h := newReader(n, api.Config{})
	t.Cleanup(h.CloseStreams)
	for _, prefixes := range [][]string{{"app:"}, {"z:", "app:"}, {"page:/", "b:", "page:", "none:", "z"}, {"nothing", "zz"}, {"app:", "page:/a", "shop:1"}} {
		for _, prefix := range []string{"", "a", "app:", "p", "page:/a"} {
			var want []string
			for _, name := range n.names {
				if mine := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }); mine && strings.HasPrefix(name, prefix) {
					want = append(want, name)
				}
			}
			for _, limit := range []int{1, 2, 3, 100} {
				got, status := listAll(t, authtest.As(t, h, "x", prefixes...), prefix, limit)
				if status == http.StatusForbidden && want == nil {
					continue // no counter of the caller's can begin so
				}
				if diff := cmp.Diff(want, got); diff != "" || status != 200 {
					t.Errorf("%q under %q, %d a page: status %d, differs (-want +got):\n%s", prefixes, prefix, limit, status, diff)
				}
			}
		}
	}
}

// listAll follows the page tokens to the end.
func listAll(t *testing.T, h http.Handler, prefix string, limit int) (names []string, status int) {
	t.Helper()
	token := ""
	for range 100 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", fmt.Sprintf("/v1/counters?prefix=%s&limit=%d%s", prefix, limit, token), nil))
		if w.Code != 200 {
			return names, w.Code
		}
		var page struct {
			Totals     []struct{ Counter string }
			Overflowed []string
			Next       string `json:"next_page_token"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		these := page.Overflowed
		for _, total := range page.Totals {
			these = append(these, total.Counter)
		}
		if len(these) > limit {
			t.Errorf("a page of %d holds %q", limit, these)
		}
		slices.Sort(these)
		names = append(names, these...)
		if page.Next == "" {
			return names, 200
		}
		token = "&page_token=" + page.Next
	}
	t.Fatal("the list has no end")
	return nil, 0
}

// A stream does not outlive its token.
func TestWatchEndsWithItsToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path, secrets := authtest.File(t, auth.Token{Name: "x", Scopes: []auth.Scope{auth.Read}})
		tokens, err := auth.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		h := newReader(newFake(), api.Config{})
		t.Cleanup(h.CloseStreams)
		rt := httpserver.NewRouter(nil)
		rt.Guard(tokens, &httpserver.Refusals{})
		h.Register(rt)
		res := open(t, rt).get(t, "GET", "/v1/watch?counter=a&interval=100ms", "Authorization", "Bearer "+secrets[0])
		first := make([]byte, 13)
		if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "event: totals" {
			t.Fatalf("got %q, %v", first, err)
		}
		authtest.Write(t, path, auth.Token{Name: "x", Scopes: []auth.Scope{auth.Read}})
		tokens.Reload(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := io.Copy(io.Discard, res.Body); ended <- err }()
		select {
		case <-ended:
		case <-time.After(time.Second):
			t.Error("the stream of a token that was taken away goes on")
			res.Body.Close()
			<-ended
		}
	})
}
