package api

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
)

// longBody is a good body of n bytes.
func longBody(n int) string {
	const frame = `{"counter":"a"}`
	return frame + strings.Repeat(" ", n-len(frame))
}

// Every row has a request that must be refused. The same request, fixed in that one place, must
// be accepted: so the handler refuses the named defect. Package wire tests its own refusals of bodies.
func TestRefuses(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	at := func(d time.Duration) string {
		return `{"counter":"a","time":"` + now.Add(d).Format(time.RFC3339) + `"}`
	}
	id129 := strings.Repeat("i", 129)
	good := `{"counter":"a"}`
	for _, tc := range []struct {
		name        string
		req, mended request
		status      int
		field       string
		limit       string // part of it
		where       string // "index 1", "line 2" or nothing
	}{
		{"empty name", post(`{"counter":""}`), post(good), 400, "counter", "1 to 500 bytes", ""},
		{"time beyond the deduplication window", post(at(-8*24*time.Hour - time.Minute)), post(at(-8*24*time.Hour + time.Hour)), 400, "time", "at most 192h0m0s ago", ""},
		{"time ahead", post(at(time.Hour)), post(at(4 * time.Minute)), 400, "time", "at most 5m0s ahead", ""},

		{"in an array", post(`[` + good + `,{"counter":"a","delta":0}]`), post(`[` + good + `]`), 400, "delta", "not 0", "index 1"},
		{"in lines", lines(good + "\n" + `{"counter":"a","delta":0}`), lines(good), 400, "delta", "not 0", "line 2"},
		{"body over 8 MiB", post(longBody(8<<20 + 1)), post(longBody(8 << 20)), 413, "body", "8388608 bytes", ""},

		{"compressed", post(good, "Content-Encoding", "gzip"), post(good, "Content-Encoding", "identity"), 415, "Content-Encoding", "identity", ""},

		{"empty key", post(good, "Idempotency-Key", ""), post(good), 400, "Idempotency-Key", "1 to 128 bytes", ""},
		{"long key", post(good, "Idempotency-Key", id129), post(good, "Idempotency-Key", id129[1:]), 400, "Idempotency-Key", "1 to 128 bytes", ""},
		{"key not UTF-8", post(good, "Idempotency-Key", "\xff"), post(good, "Idempotency-Key", "ÿ"), 400, "Idempotency-Key", "valid UTF-8", ""},
		{"key with a tab", post(good, "Idempotency-Key", "a\tb"), post(good, "Idempotency-Key", "a b"), 400, "Idempotency-Key", "no control characters", ""},
		{"two keys", post(good, "Idempotency-Key", "a", "Idempotency-Key", "a"), post(good, "Idempotency-Key", "a"), 400, "Idempotency-Key", "once", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var s recorder
			h := newIncrements(&s, IncrementsConfig{})
			resp := tc.req.do(h)
			p := problemOf(t, resp)
			if p.Status != tc.status || p.Field != tc.field || !strings.Contains(p.Limit, tc.limit) || whereOf(p) != tc.where {
				t.Errorf("got %d, field %q, limit %q, %q; want %d, %q, %q, %q",
					p.Status, p.Field, p.Limit, whereOf(p), tc.status, tc.field, tc.limit, tc.where)
			}
			if p.Detail == "" || len(p.Detail) > 400 {
				t.Errorf("got detail %q", p.Detail)
			}
			if got := s.got(); len(got) != 0 {
				t.Errorf("the sender got %+v of a refused request", got)
			}
			if resp := tc.mended.do(h); resp.StatusCode != 202 || len(s.got()) != 1 {
				t.Errorf("mended request: got %d, want 202", resp.StatusCode)
			}
			if h.pools[bodiesSent].Used() != 0 {
				t.Errorf("%d bytes are still pending", h.pools[bodiesSent].Used())
			}
		})
	}
}

func whereOf(p httpserver.Problem) string {
	var where []string
	if p.Index != nil {
		where = append(where, fmt.Sprint("index ", *p.Index))
	}
	if p.Line != nil {
		where = append(where, fmt.Sprint("line ", *p.Line))
	}
	return strings.Join(where, " ")
}

// Each change says how to repeat it when nobody knows whether it was made.
func TestMaybeDone(t *testing.T) {
	t.Parallel()
	says := map[string]string{
		"addIncrements": "this was maybe counted: repeat it only with the same ids", "sendBatch": "this was maybe counted: repeat it only with the same ids",
		"nextValues": "values were maybe given: repeat the request with the same id",
	}
	for i := range routes {
		to := &routes[i]
		if want := cmp.Or(says[to.op], "this was maybe done: repeat it, a reset only with the same id"); to.fails[504] != "" {
			p := httpserver.AsProblem(new(API).asProblem(call{to: to}, fmt.Errorf("x: %w", countmill.ErrOutcomeUnknown)))
			if p.Status != 504 || !strings.HasPrefix(p.Detail, want) {
				t.Errorf("%s: got %d %s, want 504 %s", to.op, p.Status, p.Detail, want)
			}
		}
	}
}
