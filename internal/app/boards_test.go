package app

import (
	"fmt"
	"strings"
	"testing"
)

// The top of an index over a directory, and the place of a counter, in the next answer after the increments.
func TestBoardsOfADirectory(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.waitReady(t)
	r.addRule(t, "series", "page:*", "15m:400d")
	r.createIndex(t, sites)
	var body []string
	for i := range 50 {
		body = append(body, fmt.Sprintf(`{"counter":"page:s%d:/%d","delta":%d}`, i%3, i, 10*i+1))
	}
	r.incr(t, "["+strings.Join(body, ",")+`,{"counter":"page:none","delta":1000}]`)
	const top = `"top":[{"counter":"page:s1:/49","total":491,"rank":1},{"counter":"page:s0:/48","total":481,"rank":2}]`
	for _, q := range []struct {
		path   string
		status int
		want   string
	}{
		{"/v1/top?index=sites&n=2", 200, top},
		{"/v1/top?index=sites&n=2&window=today&tz=Asia/Kolkata", 200, top},
		{"/v1/top?index=sites&n=2&window=this-month", 200, top},
		{"/v1/top?index=sites&n=1&of=groups", 200, `"top":[{"counter":"=site:s1","total":4267,"rank":1}]`},
		{"/v1/top?index=sites&window=1h", 404, "page:*=1m:6h"}, // the rule keeps no minutes, and the answer has the rule to add
		{"/v1/rank?index=sites&counter=page:s2:/47", 200, `"rank":3,"of":50,`},
	} {
		if status, text := r.call(t, "GET", q.path, ""); status != q.status || !strings.Contains(text, q.want) {
			t.Errorf("%s: got %d %s, want %d with %s", q.path, status, text, q.status, q.want)
		}
	}
}
