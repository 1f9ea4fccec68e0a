package api_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

// A fakeAdmin records each request, and always gives the same answer.
type fakeAdmin struct {
	asked string
	done  admin.Done
	err   error
	// settings answers the calls about rules.
	settings store.Settings
	indexes  []admin.IndexState
}

func (f *fakeAdmin) Grow(_ context.Context, counter string, shards int) error {
	f.asked = fmt.Sprintf("raise %q %d", counter, shards)
	return f.err
}

func (f *fakeAdmin) Reset(_ context.Context, counter, id string) (admin.Done, error) {
	f.asked = fmt.Sprintf("reset %q %q", counter, id)
	return f.done, f.err
}

func (f *fakeAdmin) Delete(_ context.Context, counter string) (admin.Done, error) {
	f.asked = fmt.Sprintf("delete %q", counter)
	return f.done, f.err
}

func (f *fakeAdmin) Rules(context.Context) (store.Settings, error) {
	f.asked = "rules"
	return f.settings, f.err
}

func (f *fakeAdmin) AddRule(_ context.Context, kind store.RuleKind, pattern string, keep store.Retention) (store.Settings, error) {
	f.asked = fmt.Sprintf("add %s %q %s", kind, pattern, keep)
	return f.settings, f.err
}

func (f *fakeAdmin) RemoveRule(_ context.Context, kind store.RuleKind, pattern string) (store.Settings, error) {
	f.asked = fmt.Sprintf("remove %s %q", kind, pattern)
	return f.settings, f.err
}

func (f *fakeAdmin) FillSeries(_ context.Context, pattern string, filled store.Period) (store.Settings, error) {
	f.asked = fmt.Sprintf("fill %q %s %s", pattern, filled.From, filled.To)
	return f.settings, f.err
}

func (f *fakeAdmin) Indexes(context.Context) ([]admin.IndexState, int64, error) {
	return f.indexes, 7, f.err
}

func (f *fakeAdmin) Index(_ context.Context, name string) (admin.IndexState, error) {
	for _, x := range f.indexes {
		if x.Name == name {
			return x, f.err
		}
	}
	return admin.IndexState{}, cmp.Or(f.err, store.ErrNoIndex)
}

func (f *fakeAdmin) CreateIndex(_ context.Context, name, match, group string, _ ...string) error {
	f.asked = fmt.Sprintf("index %q %q %q", name, match, group)
	return f.err
}

func (f *fakeAdmin) DeleteIndex(_ context.Context, name string) error {
	f.asked = fmt.Sprintf("delete index %q", name)
	return f.err
}

const jsonType = "application/json"

// call sends a request and checks the answer against the document.
func change(t *testing.T, f *fakeAdmin, doc *apitest.Document, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	rt := serve(api.Services{Admin: f}, api.Config{})
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	req.Header.Set("Content-Type", jsonType)
	rt.ServeHTTP(rec, req)
	path, _, _ := strings.Cut(target, "?")
	if strings.HasPrefix(path, "/v1/counters/") {
		path = "/v1/counters/{name}"
	}
	doc.CheckAnswer(t, method, path, rec.Code, rec.Header(), rec.Body.Bytes())
	return rec
}

func TestChanges(t *testing.T) {
	t.Parallel()
	doc := apitest.Load(t)
	const removed = `{"counter":"%s","removed":-9223372036854775808,"as_of":"2026-11-21T04:04:03.120000Z","exists":true}`
	for _, tc := range []struct {
		method, target, body string
		asked, want          string
	}{
		{"PATCH", "/v1/counters/a", `{"shards":40}`, `raise "a" 40`, `{"counter":"a","shards":40}`},
		{"PATCH", "/v1/counters/page:%2F%2Fx", ` {"shards" : 1} `, `raise "page://x" 1`, `{"counter":"page://x","shards":1}`},
		{"DELETE", "/v1/counters/a%2Fb", "", `delete "a/b"`, fmt.Sprintf(removed, "a/b")},
		{"DELETE", "/v1/counters/%2E%2E?format=string", "", `delete ".."`, strings.Replace(fmt.Sprintf(removed, ".."), `-9223372036854775808`, `"-9223372036854775808"`, 1)},
		{"POST", "/v1/reset", `{"counter":"a"}`, `reset "a" ""`, fmt.Sprintf(removed, "a")},
		{"POST", "/v1/reset?format=number", `{"id":"1","counter":"a b"}`, `reset "a b" "1"`, fmt.Sprintf(removed, "a b")},
	} {
		f := &fakeAdmin{done: admin.Done{ResetResult: store.ResetResult{Removed: int128.Of(-1 << 63), At: asOf}, Existed: true}}
		rec := change(t, f, doc, tc.method, tc.target, tc.body)
		if got := strings.TrimSpace(rec.Body.String()); rec.Code != 200 || f.asked != tc.asked || got != tc.want {
			t.Errorf("%s %s %s: got %d %s, asked for %s; want %s and %s", tc.method, tc.target, tc.body, rec.Code, got, f.asked, tc.want, tc.asked)
		}
	}
	f := &fakeAdmin{done: admin.Done{ResetResult: store.ResetResult{Removed: int128.Int{Hi: -1}, At: asOf}, Existed: true}}
	want := `{"counter":"a","removed":null,"removed_exact":"-18446744073709551616","overflow":true,"as_of":"2026-11-21T04:04:03.120000Z","exists":true}`
	if rec := change(t, f, doc, "DELETE", "/v1/counters/a", ""); rec.Code != 200 || strings.TrimSpace(rec.Body.String()) != want {
		t.Errorf("beyond 64 bits: got %d %s, want %s", rec.Code, rec.Body, want)
	}

}

// The answer says whether the name was known.
func TestChangesOfAnUnknownName(t *testing.T) {
	t.Parallel()
	doc := apitest.Load(t)
	for _, r := range [][3]string{{"DELETE", "/v1/counters/nobody", ""}, {"POST", "/v1/reset", `{"counter":"nobody"}`}} {
		f := &fakeAdmin{done: admin.Done{ResetResult: store.ResetResult{At: asOf}}}
		if rec := change(t, f, doc, r[0], r[1], r[2]); rec.Code != 200 || !strings.Contains(rec.Body.String(), `"exists":false}`) {
			t.Errorf("%s %s: got %d %s, want that it does not exist", r[0], r[1], rec.Code, rec.Body)
		}
	}
}

// A bad request is refused before admin is asked for anything. The problem says how to fix it.
func TestRefusedChanges(t *testing.T) {
	t.Parallel()
	doc := apitest.Load(t)
	const patch, reset = "/v1/counters/a", "/v1/reset"
	for _, tc := range []struct {
		method, target, body string
		status               int
		says                 string
	}{
		{"PATCH", patch, `{"shards":40.0}`, 400, "shards is not an integer (limit: 1 to 999)"},
		{"PATCH", patch, strings.Repeat(" ", 64<<10+1), 413, "the body is over 65536 bytes"},
		{"PATCH", "/v1/counters/a/b", `{"shards":40}`, 404, "%2F"},
		{"DELETE", "/v1/counters/a/b", "", 404, "%2F"},
		{"DELETE", "/v1/counters/", "", 404, "nothing is named"},
		{"POST", reset, `{"counter":"a","id":""}`, 400, "id is empty (limit: 1 to 128 bytes)"},
	} {
		f := &fakeAdmin{}
		rec := change(t, f, doc, tc.method, tc.target, tc.body)
		if rec.Code != tc.status || !strings.Contains(rec.Body.String(), tc.says) || f.asked != "" {
			t.Errorf("%s %s %.40s: got %d %s, asked for %q; want %d and %q", tc.method, tc.target, tc.body, rec.Code, rec.Body, f.asked, tc.status, tc.says)
		}
	}
}

func TestProblemsOfChanges(t *testing.T) {
	t.Parallel()
	doc := apitest.Load(t)
	bad := &countmill.FieldError{Field: "shards", Problem: "is out of range", Limit: "1 to 999"}
	wrap := func(err error) error { return fmt.Errorf("reset counter %q: %w", "a", err) }
	for _, tc := range []struct {
		err    error
		status int
		says   []string
	}{
		{wrap(bad), 400, []string{`"field":"shards"`, `"limit":"1 to 999"`}},
		{&admin.LowerError{Counter: "a", Asked: 5, Named: 20}, 409, []string{":lower", `"field":"shards"`, `"limit":"20 to 999"`, "never lowered"}},
		{wrap(countmill.ErrOverflow), 500, []string{":overflow"}},
		{wrap(errors.New("a fault")), 500, []string{":internal"}},
		{wrap(countmill.ErrUnavailable), 503, []string{":unavailable"}},
		{wrap(countmill.ErrOutcomeUnknown), 504, []string{":outcome-unknown", "a reset only with the same id"}},
	} {
		for _, r := range [][3]string{
			{"PATCH", "/v1/counters/a", `{"shards":5}`}, {"DELETE", "/v1/counters/a", ""}, {"POST", "/v1/reset", `{"counter":"a"}`},
		} {
			if tc.status == 409 && r[0] != "PATCH" {
				continue
			}
			rec := change(t, &fakeAdmin{err: tc.err}, doc, r[0], r[1], r[2])
			for _, says := range tc.says {
				if rec.Code != tc.status || !strings.Contains(rec.Body.String(), says) {
					t.Errorf("%s with %v: got %d %s, want %d and %s", r[0], tc.err, rec.Code, rec.Body, tc.status, says)
				}
			}
			if tc.status == 503 && rec.Header().Get("Retry-After") == "" {
				t.Errorf("%s with %v: no Retry-After", r[0], tc.err)
			}
		}
	}
}
