package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/httpserver"
)

// longBody is a good body of n bytes.
func longBody(n int) string {
	const frame = `{"counter":"a"}`
	return frame + strings.Repeat(" ", n-len(frame))
}

// Every row has a request that must be refused. The same request, fixed in that one place, must
// be accepted: so the handler refuses the named defect.
func TestRefuses(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	at := func(d time.Duration) string {
		return `{"counter":"a","time":"` + now.Add(d).Format(time.RFC3339) + `"}`
	}
	counter := func(name string) request { return post(`{"counter":"` + name + `"}`) }
	delta := func(literal string) request { return post(`{"counter":"a","delta":` + literal + `}`) }
	contentType := func(values ...string) request {
		return post(`{"counter":"a"}`).with(func(r *request) {
			delete(r.header, "Content-Type")
			if len(values) > 0 {
				r.header["Content-Type"] = values
			}
		})
	}
	name501, id129 := strings.Repeat("n", 501), strings.Repeat("i", 129)
	good := `{"counter":"a"}`
	const deltas, types = "-9007199254740991 to 9007199254740991", "application/json, application/x-ndjson"
	for _, tc := range []struct {
		name        string
		req, mended request
		status      int
		field       string
		limit       string // part of it
		where       string // "index 1", "line 2" or nothing
	}{
		{"empty name", counter(""), counter("a"), 400, "counter", "1 to 500 bytes", ""},
		{"long name", counter(name501), counter(name501[1:]), 400, "counter", "1 to 500 bytes", ""},
		{"name not UTF-8", counter("a\xff"), counter("aÿ"), 400, "counter", "valid UTF-8", ""},
		{"control character", counter(`a\n`), counter(`a\\n`), 400, "counter", "no control characters", ""},
		{"control character 0x7f", counter("a\u007f"), counter("a~"), 400, "counter", "no control characters", ""},
		{"leading space", counter(" a"), counter("a"), 400, "counter", "no leading or trailing space", ""},
		{"trailing space", counter("a "), counter("a"), 400, "counter", "no leading or trailing space", ""},
		{"reserved name", counter("__x__"), counter("__x_"), 400, "counter", "not __x__", ""},
		{"lone surrogate", counter(`\ud800`), counter(`\ud83d\ude00`), 400, "counter", "valid UTF-8", ""},
		{"no counter", post(`{"delta":1}`), post(`{"delta":1,"counter":"a"}`), 400, "counter", "1 to 500 bytes", ""},
		{"null counter", post(`{"counter":null}`), counter("null"), 400, "counter", "a string", ""},
		{"delta 0", delta("0"), delta("1"), 400, "delta", "not 0", ""},
		{"delta 1.5", delta("1.5"), delta("15"), 400, "delta", "an integer", ""},
		{"delta 1e3", delta("1e3"), delta("1000"), 400, "delta", "an integer", ""},
		{`delta "3"`, delta(`"3"`), delta("3"), 400, "delta", "an integer", ""},
		{"delta NaN", delta("NaN"), delta("1"), 400, "delta", "an integer", ""},
		{"delta null", delta("null"), delta("1"), 400, "delta", "an integer", ""},
		{"delta over the limit", delta("9007199254740992"), delta("9007199254740991"), 400, "delta", deltas, ""},
		{"delta under the limit", delta("-9007199254740992"), delta("-9007199254740991"), 400, "delta", deltas, ""},
		{"delta over int64", delta("9223372036854775808"), delta("1"), 400, "delta", deltas, ""},
		{"unknown field", post(`{"counter":"a","x":1}`), post(good), 400, "x", "counter, delta, id, time", ""},
		{"duplicate field", post(`{"counter":"a","counter":"b"}`), post(good), 400, "counter", "each field once", ""},
		{"differently-cased field", post(`{"counter":"a","Delta":1}`), delta("1"), 400, "Delta", "counter, delta, id, time", ""},
		{"bad time", post(`{"counter":"a","time":"now"}`), post(at(0)), 400, "time", "RFC 3339", ""},
		// Package wire tests these limits to the second; here it may be a while before the request is sent.
		{"time beyond the deduplication window", post(at(-8*24*time.Hour - time.Minute)), post(at(-8*24*time.Hour + time.Hour)), 400, "time", "at most 192h0m0s ago", ""},
		{"time ahead", post(at(time.Hour)), post(at(4 * time.Minute)), 400, "time", "at most 5m0s ahead", ""},
		{"long id", post(`{"counter":"a","id":"` + id129 + `"}`), post(`{"counter":"a","id":"` + id129[1:] + `"}`), 400, "id", "1 to 128 bytes", ""},
		{"empty id", post(`{"counter":"a","id":""}`), post(good), 400, "id", "1 to 128 bytes", ""},

		{"in an array", post(`[` + good + `,{"counter":"a","delta":0}]`), post(`[` + good + `]`), 400, "delta", "not 0", "index 1"},
		{"in lines", lines(good + "\n" + `{"counter":"a","delta":0}`), lines(good), 400, "delta", "not 0", "line 2"},
		{"truncated", post(good[:12]), post(good), 400, "body", "complete JSON", ""},
		{"truncated array", post(`[` + good), post(`[` + good + `]`), 400, "body", "complete JSON", "index 1"},
		{"truncated lines", lines(good + "\n" + good[:12]), lines(good + "\n" + good), 400, "body", "complete JSON", "line 2"},
		{"blank line", lines(good + "\n\n" + good), lines(good + "\n" + good + "\n\n"), 400, "body", "one object per line", "line 2"},
		{"two objects", post(good + good), post(good), 400, "body", "one object or one array", ""},
		{"two objects on a line", lines(good + good), lines(good), 400, "body", "one object per line", "line 1"},
		{"lines as JSON", post(good + "\n" + good), lines(good + "\n" + good), 400, "body", "application/x-ndjson", ""},
		{"array as lines", lines(`[` + good + `]`), post(`[` + good + `]`), 400, "increment", "an object", "line 1"},
		{"empty body", post(""), post(good), 400, "body", "at least one increment", ""},
		{"empty array", post("[]"), post(`[` + good + `]`), 400, "body", "at least one increment", ""},
		{"empty lines", lines("\n"), lines(good + "\n"), 400, "body", "at least one increment", ""},
		{"body over 8 MiB", post(longBody(8<<20 + 1)), post(longBody(8 << 20)), 413, "body", "8388608 bytes", ""},

		{"no content type", contentType(), contentType("application/json"), 415, "Content-Type", types, ""},
		{"curl's form", contentType("application/x-www-form-urlencoded"), contentType("application/json"), 415, "Content-Type", types, ""},
		{"wrong content type", contentType("text/json"), contentType("application/json"), 415, "Content-Type", types, ""},
		{"two content types", contentType("application/json", "application/json"), contentType("application/json"), 415, "Content-Type", types, ""},
		{"another charset", contentType("application/json; charset=latin1"), contentType("application/json; charset=utf-8"), 415, "Content-Type", "utf-8", ""},
		{"compressed", post(good, "Content-Encoding", "gzip"), post(good, "Content-Encoding", "identity"), 415, "Content-Encoding", "identity", ""},
		{"unknown parameter", post(good).with(func(r *request) { r.query = "?delta=1" }), post(good), 400, "delta", "format, return", ""},
		{"wrong method", post(good).with(func(r *request) { r.method = "PUT" }), post(good), 405, "", "", ""},

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
