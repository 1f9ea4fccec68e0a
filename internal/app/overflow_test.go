package app

import (
	"fmt"
	"strings"
	"testing"
)

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
