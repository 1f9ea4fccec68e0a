package api_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/api"
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

func TestChanges(t *testing.T) {
	t.Parallel()
	const removed = `{"counter":"%s","removed":-9223372036854775808,"as_of":"2026-11-21T04:04:03.120000Z","exists":true}`
	f := &fakeAdmin{done: admin.Done{ResetResult: store.ResetResult{Removed: int128.Of(-1 << 63), At: asOf}, Existed: true}}
	s := ask(t, api.Services{Admin: f}, api.Config{})
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
		if s.want(t, tc.method, tc.target, tc.body, 200, tc.want); f.asked != tc.asked {
			t.Errorf("%s %s %s: asked for %s, want %s", tc.method, tc.target, tc.body, f.asked, tc.asked)
		}
	}
	f.done.Removed = int128.Int{Hi: -1} // beyond 64 bits
	s.want(t, "DELETE", "/v1/counters/a", "", 200, `{"counter":"a","removed":null,"removed_exact":"-18446744073709551616","overflow":true,"as_of":"2026-11-21T04:04:03.120000Z","exists":true}`)
	f.done.Existed = false // the answer says whether the name was known
	s.want(t, "DELETE", "/v1/counters/nobody", "", 200, `"exists":false}`)
	s.want(t, "POST", "/v1/reset", `{"counter":"nobody"}`, 200, `"exists":false}`)
	f.err = &admin.LowerError{Counter: "a", Asked: 5, Named: 20}
	s.want(t, "PATCH", "/v1/counters/a", `{"shards":5}`, 409, `never lowered","status":409,"detail":`)
	s.want(t, "PATCH", "/v1/counters/a", `{"shards":5}`, 409, `"field":"shards","limit":"20 to 999"`)
	f.asked = ""
	s.wantProblems(t, 400, map[string]string{
		`PATCH /v1/counters/a {"shards":40.0}`:   "shards is not an integer (limit: 1 to 999)",
		`POST /v1/reset {"counter":"a","id":""}`: "id is empty (limit: 1 to 128 bytes)",
	})
	s.wantProblems(t, 404, map[string]string{`PATCH /v1/counters/a/b {"shards":40}`: "%2F", "DELETE /v1/counters/a/b": "%2F", "DELETE /v1/counters/": "nothing is named"})
	s.want(t, "PATCH", "/v1/counters/a", strings.Repeat(" ", 64<<10+1), 413, "the body is over 65536 bytes")
	if f.asked != "" {
		t.Errorf("refused requests asked for %q", f.asked)
	}
}

// requests are one for each route that asks a service, beside the bodies of goodBodies.
var requests = map[string]string{
	"GET /v1/totals": "?counter=a", "GET /v1/series": "?counter=a", "GET /v1/watch": "?counter=a", "GET /v1/top": "?index=a", "GET /v1/rank": "?index=a&counter=a",
	"GET /metrics/counters": "?match=a", "GET /v1/sequences": "?sequence=a", "DELETE /v1/sequences": "?sequence=a", "GET /v1/counters": "", "GET /v1/counters/{name}": "",
	"DELETE /v1/counters/{name}": "", "GET /badge/{name}": ".svg", "GET /v1/rules": "", "DELETE /v1/rules/series": "?pattern=a", "DELETE /v1/rules/journal": "?pattern=a",
	"GET /v1/indexes": "", "DELETE /v1/indexes": "?name=sites", "GET /v1/dead-letters": "", "GET /v1/dead-letters/{name}": "",
}

// Routes whose stores fail in tests of their own, that answer without services, or take no JSON.
var otherErrors = []string{
	"GET /v1/overview", "GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json", "POST /v1/batches", "GET /v1/journal", "GET /v1/journal/records", "POST /v1/journal/erase",
	"GET /v1/shards", "GET /v1/verify", "POST /v1/verify", "POST /v1/backup",
}

// Every route answers errors of its services as problems. A problem of unknown outcome says how to repeat the request, and none shows
// the text of an unexpected error.
func TestEveryRouteAnswersErrors(t *testing.T) {
	t.Parallel()
	letters := newStore(t, store.DeadLetter{Key: "a", Payload: []byte("x")})
	indexes := []admin.IndexState{indexState(t, admin.IndexServing)}
	for service, of := range map[error]int{
		countmill.ErrUnavailable: 503, errors.New("secret"): 500, countmill.ErrOutcomeUnknown: 504, context.DeadlineExceeded: 504, context.Canceled: 504,
	} {
		err := fmt.Errorf("from a service: %w", service)
		letters.err = err
		s := ask(t, api.Services{
			Reader: &fakeReader{err: err}, Admin: &fakeAdmin{err: err, indexes: indexes}, Sequences: &fakeSequences{err: err}, Recounter: &fakeRecounts{err: err},
			Sender: failing{err: err}, DeadLetters: admin.NewDeadLetters(letters),
		}, api.Config{})
		for _, route := range api.Routes() {
			name, want := route.Method+" "+route.Pattern, of
			rest, known := requests[name]
			body, has := goodBodies[name]
			reads := route.Method == http.MethodGet || name == "POST /v1/totals"
			if reads && want == 504 && !errors.Is(service, countmill.ErrOutcomeUnknown) {
				want = 503 // it left nothing behind when its time was over
			}
			if slices.Contains(otherErrors, name) || want == 504 && reads || want != 503 && strings.Contains(name, "dead-letters") {
				continue // admin makes every error of a store of dead letters an outage
			}
			if !known && !has {
				t.Errorf("%s has no request", name)
			}
			text := ""
			if has {
				encoded, _ := json.Marshal(body)
				text = string(encoded)
			}
			status, answer, header := s.call(t, route.Method, strings.ReplaceAll(route.Pattern, "{name}", "a")+rest, text)
			if status != want || strings.Contains(answer, "secret") {
				t.Errorf("%s, %v: got %d %s, want %d", name, err, status, answer, want)
			}
			if (header.Get("Retry-After") != "") != (status == 503) || status == 504 && !strings.Contains(answer, "repeat") {
				t.Errorf("%s, %v: got Retry-After %q and %s", name, err, header.Get("Retry-After"), answer)
			}
		}
	}
}
