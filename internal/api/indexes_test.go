package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/store"
)

func indexState(t *testing.T, state string) admin.IndexState {
	t.Helper()
	x, err := store.ParseIndex("sites", "page:{site}:*", "site:{site}")
	if err != nil {
		t.Fatal(err)
	}
	x.Since = asOf
	return admin.IndexState{Index: x, State: state, Ranges: 16, Done: 4, Shards: 1000}
}

func TestIndexes(t *testing.T) {
	t.Parallel()
	serving := indexState(t, admin.IndexServing)
	serving.Serving, serving.Checked, serving.Ended = asOf, asOf, asOf
	const building = `{"name":"sites","match":"page:{site}:*","group":"site:{site}","state":"building","ranges":16,"ranges_done":4,"shards_read":1000,"corrected":0,` +
		`"since":"2026-11-21T04:04:03.120000Z","serving_at":null,"checked_at":null,"ended_at":null}`
	f := &fakeAdmin{}
	s := ask(t, api.Services{Admin: f}, api.Config{})
	s.want(t, "GET", "/v1/indexes", "", 200, `{"version":7,"indexes":[]}`)
	s.wantProblems(t, 400, map[string]string{
		`POST /v1/indexes {"name":"Sites","match":"a{b}","group":"c{b}"}`: `"field":"name"`,
		`POST /v1/indexes {"name":"a","match":"{b}{c}","group":"c{b}"}`:   `"field":"match"`,
	})
	s.want(t, "DELETE", "/v1/indexes?name=other", "", 404, `urn:countmill:problem:no-index`)
	if f.asked != "" {
		t.Errorf("refused requests asked for %q", f.asked)
	}
	f.indexes = []admin.IndexState{indexState(t, admin.IndexBuilding)}
	s.want(t, "GET", "/v1/indexes", "", 200, `{"version":7,"indexes":[`+building+`]}`)
	s.want(t, "POST", "/v1/indexes", `{"name":"sites","match":"page:{site}:*","group":"site:{site}"}`, 200, building)
	if f.asked != `index "sites" "page:{site}:*" "site:{site}"` {
		t.Errorf("asked for %s", f.asked)
	}
	f.indexes = []admin.IndexState{serving}
	s.want(t, "GET", "/v1/indexes", "", 200, `"serving_at":"2026-11-21T04:04:03.120000Z","checked_at":"2026-11-21T04:04:03.120000Z","ended_at":"2026`)
	s.want(t, "DELETE", "/v1/indexes?name=sites", "", 200, `"indexes":[{`)
	if f.asked != `delete index "sites"` {
		t.Errorf("asked for %s", f.asked)
	}
	ask(t, api.Services{Admin: deleted{f}}, api.Config{}).want(t, "DELETE", "/v1/indexes?name=sites", "", 404, ":no-index")
	s = ask(t, api.Services{Admin: unlisted{f}}, api.Config{})
	s.want(t, "GET", "/v1/indexes", "", 503, ":unavailable")
	s.want(t, "POST", "/v1/indexes", `{"name":"sites","match":"page:{site}:*","group":"site:{site}"}`, 504, ":outcome-unknown")
	s.want(t, "DELETE", "/v1/indexes?name=sites", "", 504, ":outcome-unknown")
}

// unlisted is an admin that changes indexes and cannot list them.
type unlisted struct{ *fakeAdmin }

func (unlisted) Indexes(context.Context) ([]admin.IndexState, int64, error) {
	return nil, 0, fmt.Errorf("%w: reading the ranges", countmill.ErrUnavailable)
}

// deleted is an admin beside another that deletes the index.
type deleted struct{ *fakeAdmin }

func (deleted) DeleteIndex(context.Context, string) error {
	return fmt.Errorf("delete index: %w", store.ErrNoIndex)
}

// A caller needs all counters and all groups of an index to change it, and one of them to see it. For any other caller it does not exist.
func TestIndexesAreLimitedToPrefixes(t *testing.T) {
	t.Parallel()
	f := &fakeAdmin{indexes: []admin.IndexState{indexState(t, admin.IndexServing)}}
	s := ask(t, api.Services{Admin: f}, api.Config{})
	const create, all = `{"name":"sites","match":"page:{site}:*","group":"site:{site}"}`, `"indexes":[{"name":"sites"`
	for _, tc := range []struct {
		prefixes []string
		status   int
		want     string
		shown    string
	}{
		{[]string{"page:", "=site:"}, 200, all, all},
		{[]string{"=site:"}, 403, `"field":"match","limit":"=site:*"`, `"ranges":null,"ranges_done":null,"shards_read":null,"corrected":null`},
		{[]string{"page:", "site:"}, 403, `"field":"group","limit":"page:*, site:*"`, `"ranges":16,"ranges_done":4,"shards_read":1000,"corrected":0`},
	} {
		caller := s.of(t, tc.prefixes...)
		caller.want(t, "GET", "/v1/indexes", "", 200, tc.shown)
		for _, r := range [][3]string{{"POST", "/v1/indexes", create}, {"DELETE", "/v1/indexes?name=sites", ""}} {
			f.asked = ""
			caller.want(t, r[0], r[1], r[2], tc.status, tc.want)
			if changed := f.asked != ""; changed != (tc.status == 200) {
				t.Errorf("%s as %q: asked for %q", r[0], tc.prefixes, f.asked)
			}
		}
	}
}

// Of an index that it may not see, a caller learns nothing but that its name is taken.
func TestIndexesOfOthers(t *testing.T) {
	t.Parallel()
	f := &fakeAdmin{indexes: []admin.IndexState{indexState(t, admin.IndexServing)}}
	caller := ask(t, api.Services{Admin: f}, api.Config{}).of(t, "page:s1:", "=site:s1")
	caller.want(t, "GET", "/v1/indexes", "", 200, `"indexes":[]`)
	caller.want(t, "DELETE", "/v1/indexes?name=sites", "", 404, `no such index: \"sites\"`)
	caller.want(t, "DELETE", "/v1/indexes?name=other", "", 404, `no such index`)
	if f.asked != "" {
		t.Errorf("asked for %q", f.asked)
	}
}

// A group of an index that is being built has no total. Every way to read it says so, and how far the index is: but for badges,
// which strangers see, streams, and a caller that has its share of such reads.
func TestGroupsThatDoNotServe(t *testing.T) {
	t.Parallel()
	for _, deleting := range []bool{false, true} {
		f := ones()
		f.building["=site:a"], f.deleting = true, deleting
		s := ask(t, api.Services{Reader: f, Admin: &fakeAdmin{indexes: []admin.IndexState{indexState(t, admin.IndexBuilding)}}}, api.Config{})
		for _, r := range [][3]string{
			{"GET", "/v1/totals?group=site:a"}, {"POST", "/v1/totals", `{"groups":["site:a"]}`}, {"GET", "/v1/counters/%3Dsite:a"},
			{"GET", "/v1/series?group=site:a"}, {"GET", "/badge/%3Dsite:a.svg"}, {"GET", "/v1/watch?group=site:a"},
		} {
			status, text, header := s.call(t, r[0], r[1], r[2])
			progress := strings.Contains(text, `"progress":{"ranges":16,"ranges_done":4}`)
			hidden := strings.HasPrefix(r[1], "/badge/") || strings.HasPrefix(r[1], "/v1/watch")
			if status != 409 || !strings.Contains(text, ":not-serving") || progress == hidden {
				t.Errorf("%s %s: got %d %s", r[0], r[1], status, text)
			}
			if got, want := header.Get("Retry-After"), map[bool]string{false: "5", true: "60"}[deleting]; got != want {
				t.Errorf("%s %s: got Retry-After %q, want %q", r[0], r[1], got, want)
			}
		}
		for n, r := range api.Shared() {
			if strings.HasPrefix(r.Name, "requests for shards") {
				s.Handler.(*fakeAPI).TakeAll(n, "192.0.2.1:1234") // the address of all requests
			}
		}
		if status, text, _ := s.call(t, "GET", "/v1/totals?group=site:a", ""); status != 409 || strings.Contains(text, "progress") {
			t.Errorf("a caller with its share of such reads got %d %s", status, text)
		}
		_, text, _ := ask(t, api.Services{Reader: f}, api.Config{}).call(t, "GET", "/v1/totals?group=site:a", "") // a reader without an admin
		if strings.Contains(text, "progress") {
			t.Errorf("got %s", text)
		}
	}
	f := newFakeOf(map[string]int64{"=s": 7})
	ask(t, api.Services{Reader: f}, api.Config{}).want(t, "GET", "/v1/totals?group=s", "", 200, `"counter":"=s","total":7`)
}
