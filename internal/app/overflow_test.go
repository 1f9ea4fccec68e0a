package app

import (
	"fmt"
	"strings"
	"testing"
)

// A counter whose total does not fit 64 bits keeps nobody from the others: each answer for several counters names it.
func TestOverflowBesideOthers(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	if status, text := r.call(t, "POST", "/v1/rules/series", `{"pattern":"page:*","keep":"1m:6h,15m:400d"}`); status != 200 {
		t.Fatalf("a rule: got %d %s", status, text)
	}
	r.createIndex(t, sites)
	const most = 1<<53 - 1
	for range 4 { // each commit fits
		r.incr(t, "["+strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"counter":"page:a:huge","delta":%d},`, most), 300), ",")+"]")
	}
	r.incr(t, `[{"counter":"page:a:1","delta":7},{"counter":"page:b:1","delta":5}]`)
	const both, refused = "counter=page:a:huge&counter=page:a:1", "urn:countmill:problem:overflow"
	year := "&step=1y&from=2001-01-01&to=2199-01-01"
	for _, tt := range []struct {
		method, path, body string
		status             int
		wants              []string
	}{
		{"GET", "/v1/totals?" + both, "", 200, []string{`{"counter":"page:a:huge","total":null,"error":"` + refused, `"counter":"page:a:1","total":7,`}},
		{"POST", "/v1/totals", `{"counters":["page:a:huge","page:b:1"],"groups":["site:b"]}`, 200, []string{refused, `"page:b:1","total":5,`, `"=site:b","total":5,`}},
		{"GET", "/v1/counters/page:a:huge", "", 500, []string{refused, `page:a:huge`}},
		{"GET", "/v1/counters?prefix=page:", "", 200, []string{`"overflowed":["page:a:huge"]`, `"page:b:1","total":5,`}},
		{"POST", "/v1/increments?return=totals", `[{"counter":"page:a:huge"},{"counter":"page:b:1"}]`, 202, []string{refused, `"page:b:1","total":6,`}},
		{"GET", "/metrics/counters?match=page:a:huge&match=page:b:1", "", 200, []string{`{counter="page:b:1"} 6`, "countmill_counters_overflowed 1"}},
		{"GET", "/v1/top?index=sites", "", 200, []string{`"top":[{"counter":"page:a:1","total":7,"rank":1},{"counter":"page:b:1","total":6,"rank":2}],"overflowed":["page:a:huge"]`}},
		{"GET", "/v1/top?index=sites&window=this-month", "", 200, []string{`{"counter":"page:b:1","total":6,"rank":2}],"overflowed":["page:a:huge"]`}},
		{"GET", "/v1/rank?index=sites&counter=page:a:huge", "", 500, []string{refused}},
		{"GET", "/v1/rank?index=sites&counter=page:a:1", "", 200, []string{`"rank":1,`}},
		{"GET", "/v1/series?" + both + year, "", 200, []string{`"counter":"page:a:huge","value":null,"error":"` + refused, `"counter":"page:a:1","value":7,`}},
	} {
		status, text := r.call(t, tt.method, tt.path, tt.body)
		for _, want := range tt.wants {
			if status != tt.status || !strings.Contains(text, want) {
				t.Errorf("%s %s: got %d %s, want %d with %s", tt.method, tt.path, status, text, tt.status, want)
			}
		}
	}
	if event := r.firstEvent(t, both); !strings.Contains(event, refused) || !strings.Contains(event, `"page:a:1","total":7,`) {
		t.Errorf("a stream: got %s", event)
	}
}

// One request of a tenant makes a group of all tenants overflow. The others are answered, later increments bring the group back,
// and every counter can be reset and deleted.
func TestOverflowIsNotForEver(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	want := func(method, path, body string, wants ...string) {
		t.Helper()
		status, text := r.call(t, method, path, body)
		for _, want := range wants {
			if status != 200 || !strings.Contains(text, want) {
				t.Errorf("%s %s %s: got %d %s, want 200 with %s", method, path, body, status, text, want)
			}
		}
	}
	r.createIndex(t, `{"name":"grand","match":"page:{t}:*","group":"grand"}`)
	huge := func(delta int64) {
		r.incr(t, "["+strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"counter":"page:t1:a","delta":%d},`, delta), 500), ",")+"]")
	}
	r.incr(t, `[{"counter":"page:t2:b","delta":7}]`)
	const most, refused = 1<<53 - 1, "urn:countmill:problem:overflow"
	for range 3 {
		huge(most)
	}
	want("GET", "/v1/totals?group=grand&counter=page:t2:b", "", refused, `"page:t2:b","total":7,`)
	want("GET", "/v1/shards?counter=page:t1:a", "", `"count":null`)
	removed := `"removed":null,"removed_exact":"13510798882111486500","overflow":true,`
	want("POST", "/v1/reset", `{"counter":"page:t1:a","id":"once"}`, removed)
	want("POST", "/v1/reset", `{"counter":"page:t1:a","id":"once"}`, removed)
	want("GET", "/v1/totals?group=grand&counter=page:t1:a", "", refused, `"page:t1:a","total":0,`)
	r.incr(t, `[{"counter":"page:t1:a","delta":5}]`)
	want("DELETE", "/v1/counters/page:t1:a", "", `"removed":5,`)
	for range 3 {
		huge(-most)
	}
	want("GET", "/v1/totals?group=grand&counter=page:t1:a", "", `"=grand","total":12,`, refused)
	want("DELETE", "/v1/counters/page:t1:a?format=string", "", `"removed":null,"removed_exact":"-13510798882111486500","overflow":true,`)
	want("GET", "/v1/verify", "", `"problems":[]`)
}
