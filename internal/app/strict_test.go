package app

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/internal/httpserver"
)

// goodBodies is a body for each route that takes one.
var goodBodies = map[string]map[string]any{
	"POST /v1/increments":           {"counter": "a"},
	"POST /v1/totals":               {"counters": []string{"a"}},
	"PATCH /v1/counters/{name}":     {"shards": 7},
	"POST /v1/reset":                {"counter": "a"},
	"POST /v1/sequences/next":       {"sequence": "a"},
	"POST /v1/rules/series":         {"pattern": "a", "keep": "1m:6h,15m:400d"},
	"POST /v1/rules/series/filled":  {"pattern": "a", "from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"},
	"POST /v1/indexes":              {"name": "sites", "match": "page:{site}:*", "group": "site:{site}"},
	"POST /v1/rules/journal":        {"pattern": "a", "keep": "400d,paged"},
	"POST /v1/journal/erase":        {"counter": "a", "after": "0000000000000000000000000000000000000000"},
	"POST /v1/dead-letters/replay":  {"keys": []string{"a"}},
	"POST /v1/dead-letters/discard": {"keys": []string{"a"}},
	"POST /v1/verify":               {"limit": 10},
	"POST /v1/recount":              {"prefix": "a", "repair": true},
	"POST /v1/backup":               {"to": "copy"},
}

// freeQueries are the routes that ignore parameters, each with the reason.
var freeQueries = map[string]string{
	"GET /healthz":      "supervisors add parameters, and a refusal would restart the process",
	"GET /readyz":       "as /healthz",
	"GET /openapi.json": "it is one document, and browsers add parameters against caches",
	"GET /metrics":      "Prometheus adds the parameters of its configuration",
}

// Every route is strict in the same way: it names the error, and does nothing.
func TestEveryRouteIsStrict(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := startBackups(t, root)
	doc := apitest.Load(t)
	r.incr(t, `{"counter":"a","delta":5}`)
	for _, route := range api.Routes() {
		name := route.Method + " " + route.Pattern
		for _, f := range doc.Faults(t, route, goodBodies[name]) {
			free := f.Query != "" && freeQueries[name] != ""
			if free {
				f.Status = 200
			}
			path := pathOf(route, "a")
			if f.Query != "" {
				path += "?" + f.Query
			}
			status, text := r.call(t, f.Method, path, f.Body, "Content-Type", f.ContentType)
			if status != f.Status {
				t.Errorf("%s, %s: %s %s %q: got %d %s, want %d", name, f.What, f.Method, path, f.Body, status, text, f.Status)
				continue
			}
			var p httpserver.Problem
			if err := json.Unmarshal([]byte(text), &p); !free && (err != nil || p.Status != f.Status || f.Field != "" && p.Field != f.Field) {
				t.Errorf("%s, %s: %s %s %q: got %s (%v), want a problem with field %q", name, f.What, f.Method, path, f.Body, text, err, f.Field)
			}
		}
	}
	r.wantTotal(t, "a", 5)
	if _, text := r.call(t, "GET", "/v1/shards?counter=a", ""); !strings.Contains(text, `"shards":1,`) {
		t.Errorf("a refused request grew the counter: %s", text)
	}
	if made, err := os.ReadDir(root); err != nil || len(made) != 0 {
		t.Errorf("refused requests made the backups %v (%v)", made, err)
	}
}
