package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/reader"
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

// A group has one name in requests, without its =, and is not empty.
func TestGroupsAreNamedWithoutTheirMark(t *testing.T) {
	t.Parallel()
	srv, _ := start(t, &fakeReader{counters: map[string]int64{"=s": 7}}, api.Config{})
	for _, tc := range []struct{ method, path, body, want string }{
		{"GET", "/v1/totals?group==s", "", `"field":"group","limit":"the name of a group without its ="`},
		{"GET", "/v1/totals?group=", "", `"field":"group","limit":"1 to 499 bytes"`},
		{"GET", "/v1/totals?counter=a&group=", "", `"field":"group"`},
		{"POST", "/v1/totals", `{"groups":["s","=a"]}`, `"field":"groups","limit":"the name of a group without its ="`},
		{"POST", "/v1/totals", `{"groups":[""]}`, `"field":"groups","limit":"1 to 499 bytes"`},
		{"GET", "/v1/series?group==s", "", `"field":"group"`},
		{"GET", "/v1/watch?group==s", "", `"field":"group"`},
	} {
		if status, text, _ := call(t, tc.method, srv.URL+tc.path, tc.body, "Content-Type", jsonType); status != 400 || !strings.Contains(text, tc.want) {
			t.Errorf("%s %s %s: got %d %s, want 400 and %s", tc.method, tc.path, tc.body, status, text, tc.want)
		}
	}
	if status, text, _ := call(t, "GET", srv.URL+"/v1/totals?group=s", ""); status != 200 || !strings.Contains(text, `"counter":"=s","total":7`) {
		t.Errorf("group=s: got %d %s", status, text)
	}
}

func TestIndexes(t *testing.T) {
	t.Parallel()
	doc := apitest.Load(t)
	serving := indexState(t, admin.IndexServing)
	serving.Serving, serving.Checked, serving.Ended = asOf, asOf, asOf
	const building = `{"name":"sites","match":"page:{site}:*","group":"site:{site}","state":"building","ranges":16,"ranges_done":4,"shards_read":1000,"corrected":0,` +
		`"since":"2026-11-21T04:04:03.120000Z","serving_at":null,"checked_at":null,"ended_at":null}`
	const good = `{"name":"sites","match":"page:{site}:*","group":"site:{site}"}`
	for _, tc := range []struct {
		method, target, body string
		states               []admin.IndexState
		status               int
		asked, want          string
	}{
		{"GET", "/v1/indexes", "", nil, 200, "", `{"version":7,"indexes":[]}`},
		{"GET", "/v1/indexes", "", []admin.IndexState{indexState(t, admin.IndexBuilding)}, 200, "", `{"version":7,"indexes":[` + building + `]}`},
		{"GET", "/v1/indexes", "", []admin.IndexState{serving}, 200, "", `"serving_at":"2026-11-21T04:04:03.120000Z","checked_at":"2026-11-21T04:04:03.120000Z","ended_at":"2026`},
		{"POST", "/v1/indexes", good, []admin.IndexState{indexState(t, admin.IndexBuilding)}, 200, `index "sites" "page:{site}:*" "site:{site}"`, building},
		{"POST", "/v1/indexes", `{"name":"Sites","match":"a{b}","group":"c{b}"}`, nil, 400, "", `"field":"name"`},
		{"POST", "/v1/indexes", `{"match":"a{b}","group":"c{b}"}`, nil, 400, "", `"field":"name"`},
		{"POST", "/v1/indexes", `{"name":"a","group":"c{b}"}`, nil, 400, "", `"field":"match"`},
		{"POST", "/v1/indexes", `{"name":"a","match":"{b}{c}","group":"c{b}"}`, nil, 400, "", `"field":"match"`},
		{"POST", "/v1/indexes", `{"name":"a","match":"a{b}"}`, nil, 400, "", `"field":"group"`},
		{"DELETE", "/v1/indexes?name=sites", "", []admin.IndexState{serving}, 200, `delete index "sites"`, `"indexes":[{`},
		{"DELETE", "/v1/indexes?name=other", "", []admin.IndexState{serving}, 404, "", `urn:countmill:problem:no-index`},
		{"DELETE", "/v1/indexes", "", nil, 400, "", `"field":"name"`},
	} {
		f := &fakeAdmin{indexes: tc.states}
		rec := change(t, f, doc, tc.method, tc.target, tc.body)
		if rec.Code != tc.status || f.asked != tc.asked || !strings.Contains(rec.Body.String(), tc.want) {
			t.Errorf("%s %s %s: got %d %s, asked for %q; want %d, %s", tc.method, tc.target, tc.body, rec.Code, rec.Body, f.asked, tc.status, tc.want)
		}
	}
	for _, method := range []string{"GET", "POST", "DELETE"} {
		f := &fakeAdmin{indexes: []admin.IndexState{serving}, err: errors.New("secret")}
		body, target := "", "/v1/indexes"
		switch method {
		case "POST":
			body = good
		case "DELETE":
			target += "?name=sites"
		}
		if rec := change(t, f, doc, method, target, body); rec.Code != 500 || strings.Contains(rec.Body.String(), "secret") {
			t.Errorf("%s after an error: got %d %s", method, rec.Code, rec.Body)
		}
	}
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

// An undeletable index can be read, and not deleted.
type undeletable struct {
	*fakeAdmin
	reason error
}

func (u undeletable) DeleteIndex(context.Context, string) error {
	return fmt.Errorf("delete index: %w", u.reason)
}

func TestIndexesThatCannotBeDeleted(t *testing.T) {
	t.Parallel()
	f := &fakeAdmin{indexes: []admin.IndexState{indexState(t, admin.IndexServing)}}
	for _, tc := range []struct {
		reason error
		status int
		says   string
	}{
		{store.ErrNoIndex, 404, ":no-index"}, // another caller was faster
		{countmill.ErrUnavailable, 503, ":unavailable"},
		{countmill.ErrOutcomeUnknown, 504, "maybe done: repeat it"},
	} {
		ask(t, api.Services{Admin: undeletable{f, tc.reason}}, api.Config{}).want(t, "DELETE", "/v1/indexes?name=sites", "", tc.status, tc.says)
	}
}

// A notServing reader has no groups.
type notServing struct {
	api.Reader
	deleting bool
}

func (n notServing) err() error {
	return fmt.Errorf("reading: %w", &reader.NotServingError{Group: "=site:a", Index: "sites", Deleting: n.deleting})
}

func (n notServing) TotalsSince(context.Context, []string, time.Duration, time.Time) ([]reader.Total, error) {
	return nil, n.err()
}

func (n notServing) Series(context.Context, reader.SeriesQuery) (reader.Series, error) {
	return reader.Series{}, n.err()
}

func (notServing) Pipeline(context.Context) reader.Pipeline { return reader.Pipeline{} }

// A group of an index that is being built has no total. Every way to read it says so, and how far the index
// is.
func TestGroupsThatDoNotServe(t *testing.T) {
	t.Parallel()
	doc := apitest.Load(t)
	for _, tc := range []struct {
		method, target, pattern, body string
		progress                      bool
	}{
		{"GET", "/v1/totals?group=site:a", "/v1/totals", "", true},
		{"POST", "/v1/totals", "/v1/totals", `{"groups":["site:a"]}`, true},
		{"GET", "/v1/counters/%3Dsite:a", "/v1/counters/{name}", "", true},
		{"GET", "/v1/series?group=site:a", "/v1/series", "", true},
		{"GET", "/badge/%3Dsite:a.svg", "/badge/{name}", "", true},
		{"GET", "/v1/watch?group=site:a", "/v1/watch", "", false},
	} {
		for _, deleting := range []bool{false, true} {
			f := &fakeAdmin{indexes: []admin.IndexState{indexState(t, admin.IndexBuilding)}}
			rt := serve(api.Services{Reader: notServing{deleting: deleting}, Admin: f}, api.Config{})
			rec := httptest.NewRecorder()
			req := httptest.NewRequest(tc.method, tc.target, strings.NewReader(tc.body))
			req.Header.Set("Content-Type", jsonType)
			rt.ServeHTTP(rec, req)
			doc.CheckAnswer(t, tc.method, tc.pattern, rec.Code, rec.Header(), rec.Body.Bytes())
			text, retry := rec.Body.String(), rec.Header().Get("Retry-After")
			if rec.Code != http.StatusConflict || !strings.Contains(text, ":not-serving") || strings.Contains(text, `"progress":{"ranges":16,"ranges_done":4}`) != tc.progress {
				t.Errorf("%s %s: got %d %s", tc.method, tc.target, rec.Code, text)
			}
			if want := map[bool]string{false: "5", true: "60"}[deleting]; retry != want {
				t.Errorf("%s %s: got Retry-After %q, want %q", tc.method, tc.target, retry, want)
			}
		}
	}
	rt := serve(api.Services{Reader: notServing{}}, api.Config{}) // a reader without an admin
	rec := httptest.NewRecorder()
	rt.ServeHTTP(rec, httptest.NewRequest("GET", "/v1/totals?group=site:a", http.NoBody))
	if rec.Code != http.StatusConflict || strings.Contains(rec.Body.String(), "progress") {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
}
