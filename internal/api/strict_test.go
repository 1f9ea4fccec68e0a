package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
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

// Every route is strict in the same way: it names the error, and asks no service for anything, since these services would panic.
func TestEveryRouteIsStrict(t *testing.T) {
	t.Parallel()
	h := serve(api.Services{
		Sender: taker{}, BatchReceiver: struct{ api.BatchReceiver }{}, Reader: struct{ api.Reader }{}, Admin: struct{ api.Admin }{},
		Sequences: struct{ api.Sequences }{}, Recounter: struct{ api.Recounter }{}, Journal: admin.NewJournal(nil, time.Minute),
		Verifier: admin.NewVerifier(nil, nil), DeadLetters: admin.NewDeadLetters(nil),
		Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		Backup:  func(context.Context, string) (client.Backup, error) { panic("a refused request makes a backup") },
	}, api.Config{})
	doc := apitest.Load(t)
	for _, route := range api.Routes() {
		name := route.Method + " " + route.Pattern
		for _, f := range doc.Faults(t, route, goodBodies[name]) {
			free := f.Query != "" && freeQueries[name] != ""
			if free {
				f.Status = 200
			}
			req := httptest.NewRequest(f.Method, strings.ReplaceAll(route.Pattern, "{name}", "a")+"?"+f.Query, strings.NewReader(f.Body))
			req.Header.Set("Content-Type", f.ContentType)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, req)
			var p httpserver.Problem
			err := json.Unmarshal(rec.Body.Bytes(), &p)
			if rec.Code != f.Status || !free && (err != nil || p.Status != f.Status || f.Field != "" && p.Field != f.Field) {
				t.Errorf("%s, %s: %s %s %q: got %d %s (%v), want %d with field %q", name, f.What, f.Method, req.URL, f.Body, rec.Code, rec.Body, err, f.Status, f.Field)
			}
			if f.Method == route.Method && !free {
				doc.CheckAnswer(t, route.Method, route.Pattern, rec.Code, rec.Header(), rec.Body.Bytes())
			}
		}
	}
}
