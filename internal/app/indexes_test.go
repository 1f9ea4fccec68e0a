package app

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/httpserver"
)

const sites = `{"name":"sites","match":"page:{site}:*","group":"site:{site}"}`

// createIndex creates an index, and waits until it serves.
func (r *running) createIndex(t *testing.T, body string) {
	t.Helper()
	status, text := r.call(t, "POST", "/v1/indexes", body)
	if status != 200 || !strings.Contains(text, `"state":`) {
		t.Fatalf("creating an index: got %d %s", status, text)
	}
	var made struct{ Name string }
	if err := json.Unmarshal([]byte(body), &made); err != nil {
		t.Fatal(err)
	}
	r.poll(t, "serving", func() bool { return r.indexState(t, made.Name) == "serving" })
}

// indexState is the state of an index; empty if it is gone.
func (r *running) indexState(t *testing.T, name string) string {
	t.Helper()
	status, text := r.call(t, "GET", "/v1/indexes", "")
	var got struct {
		Indexes []struct{ Name, State string }
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 {
		t.Fatalf("GET /v1/indexes: got %d %s", status, text)
	}
	for _, x := range got.Indexes {
		if x.Name == name {
			return x.State
		}
	}
	return ""
}

// wantNoProblems checks the stored data: shards and groups are on pages of their own.
func (r *running) wantNoProblems(t *testing.T) {
	t.Helper()
	for query := ""; ; {
		status, text := r.call(t, "GET", "/v1/verify"+query, "")
		var got struct {
			Next string `json:"next_page_token"`
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 || !strings.Contains(text, `"problems":[]`) {
			t.Fatalf("verify%s: got %d %s, want no problems", query, status, text)
		}
		if query = "?page_token=" + got.Next; got.Next == "" {
			return
		}
	}
}

// A group has what its counters counted before its index and after it, wherever it is read.
func TestGroupsAreReadLikeCounters(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	if status, text := r.call(t, "POST", "/v1/rules/series", `{"pattern":"=site:*","keep":"1m:6h,15m:400d"}`); status != 200 {
		t.Fatalf("a rule for groups: got %d %s", status, text)
	}
	r.incr(t, `[{"counter":"page:a:1","delta":5},{"counter":"page:a:2","delta":7},{"counter":"page:b:1","delta":100},{"counter":"other","delta":3}]`)
	r.createIndex(t, sites)
	r.incr(t, `[{"counter":"page:a:2","delta":-2},{"counter":"page:a:new","delta":30}]`)
	for path, want := range map[string]string{
		"/v1/totals?group=site:a":                       `"total":40,`,
		"/v1/totals?counter=other&group=site:b":         `"total":100,`,
		"/v1/totals?counter=%3Dsite:a":                  `"counter":"=site:a"`,
		"/v1/counters/%3Dsite:a":                        `"checked_at":"`,
		"/v1/counters?prefix=%3Dsite:":                  `"counter":"=site:b"`,
		"/v1/series?group=site:a&step=1d&format=number": `"value":28,`, // the rule is older, and counts from the index on
		"/badge/%3Dsite:a.json":                         `"message":"40"`,
		"/badge/%3Dsite:a.svg":                          `=site:a: 40`,
		"/metrics/counters?match=%3Dsite:*":             `countmill_value{counter="=site:a"} 40`,
		"/metrics/counters?match=%3Dsite:a&match=other": `countmill_value{counter="=site:a"} 40`,
		"/v1/shards?counter=%3Dsite:a":                  `"shards":1,`,
		"/v1/verify":                                    `"problems":[]`,
		"/v1/totals?group=site:nobody":                  `"exists":false`,
		"/v1/overview":                                  `"indexer"`,
		"/metrics":                                      "countmill_indexes{state=\"serving\"} 1",
		"/v1/counters?prefix=%3Dsite:&limit=1&page_token=" + httpserver.PageToken("=site:a"): `"counter":"=site:b"`,
	} {
		if status, text := r.call(t, "GET", path, ""); status != 200 || !strings.Contains(text, want) {
			t.Errorf("GET %s: got %d %s, want %s", path, status, text, want)
		}
	}
	status, text := r.call(t, "POST", "/v1/totals", `{"counters":["other"],"groups":["site:b","site:a"]}`)
	if a, b := strings.Index(text, `"=site:a"`), strings.Index(text, `"=site:b"`); status != 200 || b < strings.Index(text, `"other"`) || a < b {
		t.Errorf("POST /v1/totals: got %d %s, want other, =site:b and =site:a", status, text)
	}
	if _, text := r.call(t, "GET", "/v1/counters", ""); strings.Contains(text, "=site") || !strings.Contains(text, "page:a:1") {
		t.Errorf("the list of all counters has groups, whose increments are in its counters too: %s", text)
	}
	for _, query := range []string{"group=site:a", "prefix=%3Dsite:a"} {
		if event := r.firstEvent(t, query); !strings.Contains(event, `"counter":"=site:a","total":40,`) {
			t.Errorf("watching %s: got %s", query, event)
		}
	}
	r.wantNoProblems(t)
}

// firstEvent is the data of the first event of a stream.
func (r *running) firstEvent(t *testing.T, query string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/v1/watch?"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return data
		}
	}
	return ""
}

// Nothing but its counters moves a group.
func TestGroupsAreNotChanged(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.incr(t, `{"counter":"page:a:1","delta":5}`)
	r.createIndex(t, sites)
	for _, refused := range []struct{ method, path, body, kind string }{
		{"POST", "/v1/increments", `{"counter":"=site:a"}`, ""},
		{"POST", "/v1/increments", `[{"counter":"page:a:1"},{"counter":"=site:a","id":"x"}]`, ""},
		{"POST", "/v1/increments?at=2026-01-02T00:00:00Z", `{"counter":"=site:a"}`, ""},
		{"POST", "/v1/increments", "{\"counter\":\"page:a:1\"}\n{\"counter\":\"=site:a\"}\n", "application/x-ndjson"},
		{"POST", "/v1/batches", aBatch("=site:a"), typeBatch},
		{"POST", "/v1/batches", aBatch("page:a:1", "=x"), typeBatch},
		{"DELETE", "/v1/counters/%3Dsite:a", "", ""},
		{"POST", "/v1/reset", `{"counter":"=site:a"}`, ""},
		{"PATCH", "/v1/counters/%3Dnobody", `{"shards":3}`, ""},
		{"POST", "/v1/indexes", `{"name":"x","match":"=site:{a}","group":"all:{a}"}`, ""},
		{"POST", "/v1/indexes", `{"name":"x","match":"page:{a}","group":"site:{b}"}`, ""},
		{"POST", "/v1/indexes", `{"name":"x","match":"page:{a}","group":"site:{a}"}`, ""}, // sites has these groups
		{"POST", "/v1/indexes", `{"name":"sites","match":"page:{a}","group":"other:{a}"}`, ""},
	} {
		header := []string{"Content-Type", "application/json"}
		if refused.kind != "" {
			header[1] = refused.kind
		}
		status, text := r.call(t, refused.method, refused.path, refused.body, header...)
		if status != 400 || !strings.Contains(text, `"field":`) && refused.kind != typeBatch {
			t.Errorf("%s %s %q: got %d %s, want 400 and a field", refused.method, refused.path, refused.body, status, text)
		}
	}
	if status, text := r.call(t, "PATCH", "/v1/counters/%3Dsite:a", `{"shards":3}`); status != 200 {
		t.Errorf("growing a group: got %d %s", status, text)
	}
	r.incr(t, `{"counter":"page:a:1","delta":2}`)
	r.wantTotal(t, "=site:a", 7)
	r.wantTotal(t, "page:a:1", 7)
	// A reset and a delete take their counters back alone: a group is the sum of increments.
	r.call(t, "POST", "/v1/reset", `{"counter":"page:a:1"}`)
	r.call(t, "DELETE", "/v1/counters/page:a:1", "")
	r.wantTotal(t, "page:a:1", 0)
	r.wantTotal(t, "=site:a", 7)
	r.wantNoProblems(t)
}

// Until all is deleted the groups cannot be read, and the name stays taken.
func TestDeletedIndexIsNotRead(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.incr(t, `{"counter":"page:a:1","delta":5}`)
	r.createIndex(t, sites)
	r.wantTotal(t, "=site:a", 5)
	for range 2 {
		if status, text := r.call(t, "DELETE", "/v1/indexes?name=sites", ""); status != 200 || !strings.Contains(text, `"state":"deleting"`) {
			t.Fatalf("the deletion: got %d %s", status, text)
		}
	}
	for _, path := range []string{"/v1/totals?group=site:a", "/v1/counters/%3Dsite:a", "/v1/watch?group=site:a", "/badge/%3Dsite:a.svg"} {
		if status, text := r.call(t, "GET", path, ""); status != 409 || !strings.Contains(text, "urn:countmill:problem:not-serving") || !strings.Contains(text, "is being deleted") {
			t.Errorf("GET %s: got %d %s, want 409 not-serving", path, status, text)
		}
	}
	if _, text := r.call(t, "GET", "/v1/counters?prefix=%3D", ""); strings.Contains(text, "=site") {
		t.Errorf("a list has groups of a deleted index: %s", text)
	}
	if status, text := r.call(t, "GET", "/metrics/counters?match=%3Dsite:a&match=page:a:1", ""); status != 200 || strings.Contains(text, "=site") || !strings.Contains(text, "page:a:1") {
		t.Errorf("a scrape: got %d %s, want the counter without the group", status, text)
	}
	if status, text := r.call(t, "POST", "/v1/indexes", sites); status != 400 || !strings.Contains(text, "wait until it is gone") {
		t.Errorf("the same name again: got %d %s", status, text)
	}
	r.incr(t, `{"counter":"page:a:1"}`)
	r.wantTotal(t, "page:a:1", 6)
	r.wantNoProblems(t)
	if status, text := r.call(t, "DELETE", "/v1/indexes?name=nobody", ""); status != 404 || !strings.Contains(text, "no-index") {
		t.Errorf("an index that does not exist: got %d %s", status, text)
	}
}

func TestIndexWorkNeedsASharedStore(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Roles: Indexer, Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir())})
	if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "countmill up") {
		t.Errorf("got %v", err)
	}
}
