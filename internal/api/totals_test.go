package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/wire"
)

const tail = `"as_of":"2026-11-21T04:04:03.120000Z","source":"store","shards":3,"exists":true}`

func TestAnswers(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.counters["a"], f.overflow["b"] = 7, true
	s := ask(t, api.Services{Reader: f}, api.Config{})
	const absent = `{"counter":"x","total":0,"as_of":"2026-11-21T04:04:03.120000Z","source":"store","shards":0,"exists":false}`
	const seven, lag = `{"counter":"a","total":7,` + tail, `],"lag":0.1205}`
	const overflow = `{"counter":"b","total":null,"error":"urn:countmill:problem:overflow",` + tail
	alone := tail[:len(tail)-1] + `,"lag":0.1205}`
	for _, tc := range []struct{ method, path, body, want string }{
		{"GET", "/v1/totals?counter=a", "", `{"totals":[` + seven + lag},
		{"GET", "/v1/totals?counter=x&counter=a&counter=x", "", `{"totals":[` + absent + `,` + seven + `,` + absent + lag},
		{"GET", "/v1/totals?counter=%3C%26%3E", "", `{"totals":[{"counter":"<&>","total":6,` + tail + lag},
		{"GET", "/v1/totals?counter=big&counter=neg", "", `{"totals":[{"counter":"big","total":9223372036854775807,` + tail + `,{"counter":"neg","total":-9223372036854775808,` + tail + lag},
		{"GET", "/v1/totals?counter=big&format=string", "", `{"totals":[{"counter":"big","total":"9223372036854775807",` + tail + lag},
		{"GET", "/v1/totals?counter=b&counter=a", "", `{"totals":[` + overflow + `,` + seven + lag}, // one without a total keeps no other from its reader
		{"POST", "/v1/totals?format=number", `{"counters":["a"]}`, `{"totals":[` + seven + lag},
		{"POST", "/v1/totals", `{"counters":["b","a"]}`, `{"totals":[` + overflow + `,` + seven + lag},
		{"GET", "/v1/counters/a", "", `{"counter":"a","total":7,` + alone},
		{"GET", "/v1/counters/a%2F%2Fb", "", `{"counter":"a//b","total":1,` + alone},
		{"GET", "/v1/counters/https:%2F%2Fx.org%2Fp", "", `{"counter":"https://x.org/p","total":2,` + alone},
		{"GET", "/v1/counters/a%2F..%2Fb?format=string", "", `{"counter":"a/../b","total":"3",` + alone},
		{"GET", "/v1/counters?prefix=b&limit=1", "", `{"totals":[],"overflowed":["b"],"next_page_token":"MWI","lag":0.1205}`},
		{"GET", "/v1/counters?prefix=nobody", "", `{"totals":[],"lag":0.1205}`},
	} {
		status, got, header := s.call(t, tc.method, tc.path, tc.body)
		if status != 200 || got != tc.want || header.Get("Content-Type") != jsonType || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s\ngot  %d %s\nwant 200 %s", tc.method, tc.path, status, got, tc.want)
		}
	}
	s.want(t, "GET", "/v1/counters/b", "", 500, `counter \"b\"`)
	f.pipeline = reader.Pipeline{}
	s.want(t, "GET", "/v1/counters/a", "", 200, `,"lag":null}`)
	s = ask(t, api.Services{Reader: f, Unseen: func() time.Duration { return 1500 * time.Millisecond }}, api.Config{}) // the bus can say it
	s.want(t, "GET", "/v1/totals?counter=a", "", 200, `"lag":null,"unseen":1.5}`)
}

// A name is never split. If a name looks like a list and no counter has it, the answer has a hint.
func TestAListOfNamesIsOneName(t *testing.T) {
	t.Parallel()
	s := ask(t, api.Services{Reader: ones("x,y")}, api.Config{})
	const hint = `,"hint":"this is one name with a comma in it;`
	s.want(t, "GET", "/v1/totals?counter=a,b", "", 200, hint)
	s.want(t, "GET", "/v1/counters/a,b", "", 200, hint)
	for _, query := range []string{"counter=x,y", "counter=a&counter=nobody"} {
		if _, got, _ := s.call(t, "GET", "/v1/totals?"+query, ""); strings.Contains(got, "hint") {
			t.Errorf("%s: got %s", query, got)
		}
	}
}

func TestStalenessReachesTheReader(t *testing.T) {
	t.Parallel()
	f := newFake()
	s := ask(t, api.Services{Reader: f}, api.Config{})
	for param, want := range map[string]time.Duration{"": -1, "&max_staleness=2s": 2 * time.Second, "&max_staleness=0": 0, "&max_staleness=1h30m": 90 * time.Minute} {
		for _, path := range []string{"/v1/totals?counter=a", "/metrics/counters?match=a"} {
			if s.want(t, "GET", path+param, "", 200, ""); f.maxStaleness != want {
				t.Errorf("%s%s: the reader was asked for %s, want %s", path, param, f.maxStaleness, want)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := ask(t, api.Services{Reader: newFake()}, api.Config{})
	receipt := aReceipt().String()
	s.wantProblems(t, 400, map[string]string{
		"GET /v1/totals?counter=":                                                "counter is empty",
		"GET /v1/totals?counter=a&counter=__x__":                                 `"detail":"counter 1 (from 0): counter has the reserved form __x__`,
		"GET /v1/totals?counter=a&counter=%FF":                                   `"index":1`,
		"GET /v1/totals?" + strings.Repeat("&counter=a", 101)[1:]:                `"limit":"1 to 100"`,
		"GET /v1/totals?counter=a&max_staleness=2":                               "max_staleness is not a duration",
		"GET /v1/totals?counter=a&max_staleness=-2s":                             "max_staleness is negative",
		"GET /v1/totals?counter=a&max_staleness=":                                `"field":"max_staleness"`,
		"GET /v1/totals?counter=%zz":                                             `"field":"query"`,
		"POST /v1/totals {\"counters\":[]}":                                      `"field":"counters"`,
		"POST /v1/totals {}":                                                     `"field":"counters"`,
		`POST /v1/totals {"counters":["a",null]}`:                                "not an array of strings",
		`POST /v1/totals {"counters":["a",1]}`:                                   "not an array of strings",
		`POST /v1/totals {"counters":["a",""]}`:                                  `"index":1`,
		`POST /v1/totals {"counters":["\ud800"]}`:                                "is not JSON",
		"POST /v1/totals {\"counters\":[\"\xff\"]}":                              "is not JSON",
		`POST /v1/totals {"counters":[` + strings.Repeat(`"a",`, 1000) + `"a"]}`: "too many",
		"GET /v1/counters?page_token=a":                                          `"field":"page_token"`,
		"GET /v1/counters/%20a":                                                  "space",
		"GET /v1/watch":                                                          `"field":"counter"`,
		"GET /v1/watch?counter=%20":                                              "space",
		"GET /v1/watch?counter=a&interval=1ms":                                   "100ms to 5s",
		"GET /v1/watch?counter=a&limit=5":                                        `"field":"limit","limit":"only with prefix"`,
		"GET /v1/watch?prefix=a&counter=a":                                       `"field":"counter","limit":"prefix with limit, or counter with interval, max_staleness and min_as_of"`,
		"GET /v1/watch?prefix=a&interval=1s":                                     `"field":"interval"`,
		// A group has one name in requests, without its =, and is not empty.
		"GET /v1/totals?group==s":               `"field":"group","limit":"the name of a group without its ="`,
		"GET /v1/totals?counter=a&group=":       `"field":"group","limit":"1 to 499 bytes"`,
		`POST /v1/totals {"groups":["s","=a"]}`: `"field":"groups","limit":"the name of a group without its ="`,
		"GET /v1/series?group==s":               `"field":"group"`,
		"GET /v1/watch?group==s":                `"field":"group"`,

		"GET /v1/totals?counter=a&wait=1s":                                 `"field":"wait"`,
		"GET /v1/totals?counter=a&wait=5001ms&after=" + receipt:            `"field":"wait"`,
		"GET /v1/totals?counter=a&wait=-1s&after=" + receipt:               `"field":"wait"`,
		"GET /v1/totals?counter=a&wait=2&after=" + receipt:                 `"field":"wait"`,
		"GET /v1/totals?counter=a&after=":                                  `"field":"after"`,
		"GET /v1/totals?counter=a&after=" + receipt[:len(receipt)-1] + "_": `"field":"after"`,
		"GET /v1/totals?counter=a&min_as_of=yesterday":                     `"field":"min_as_of"`,
		"GET /metrics/counters?match=%20a":                                 "match begins or ends with a space",
		"GET /metrics/counters?match=a&max_staleness=x":                    "max_staleness is not a duration",
		"GET /metrics/counters?match=%FF*":                                 "match is no prefix",
		"GET /metrics/counters?match=" + strings.Repeat("a", 501) + "*":    "match is no prefix",
		"GET /metrics/counters?" + strings.Repeat("&match=a", 101)[1:]:     `"limit":"1 to 100"`,
		"GET /v1/series?counter=a&step=7m":                                 `"field":"step","limit":`,
		"GET /v1/series?counter=a&tz=Local":                                `"field":"tz","limit":`,
		"GET /v1/series?counter=a&tz=":                                     `"field":"tz","limit":`,
		"GET /v1/series?counter=a&tz=../passwd":                            `"field":"tz","limit":`,
		"GET /v1/series?counter=a&from=noon":                               `"field":"from","limit":`,
		"GET /v1/series?counter=a&to=2026-13-1":                            `"field":"to","limit":`,
		"GET /v1/top?index=a&window=2h":                                    `"field":"window"`,
		"GET /v1/top?index=a&window=today&tz=Nowhere":                      `"field":"tz"`,
		"GET /v1/top?index=a&tz=UTC":                                       `"field":"tz","limit":"with window today, this-week or this-month"`,
		"GET /v1/rank?index=a&counter=a&tz=UTC":                            `"field":"tz","limit":"with window today, this-week or this-month"`,
		"GET /v1/top?index=a&window=&tz=":                                  `"field":"tz"`,
	})
	s.want(t, "POST", "/v1/totals", strings.Repeat(" ", 8<<20+1), 413, "8388608 bytes")
	s.want(t, "GET", "/v1/counters/a/b", "", 404, "one path segment")
	s.want(t, "GET", "/badge/page:.png", "", 404, ".svg or .json")
}

func aReceipt() wire.Receipt {
	return wire.Receipt{
		Database: wire.TagOf("here"), Time: time.UnixMicro(1_790_000_000_000_000).UTC(),
		Spans: []wire.Span{{Flush: wire.FlushHash{1, 2}, First: 0, Last: 2}},
	}
}

func TestTotalsAfterAReceipt(t *testing.T) {
	t.Parallel()
	receipt := aReceipt()
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "/v1/totals?counter=a&", ""}, {"GET", "/v1/counters/a?", ""}, {"POST", "/v1/totals?", `{"counters":["a"]}`},
	} {
		f := newFake()
		f.deadLetters = []reader.DeadLetterRef{{Key: "l-1"}, {Key: "l-2", Discarded: true}}
		s := ask(t, api.Services{Reader: f}, api.Config{})
		s.want(t, tc.method, tc.path+"wait=1500ms&min_as_of=2026-11-21T04:04:03.5Z&after="+receipt.String(), tc.body, 200,
			`"dead_letters":[{"key":"l-1","discarded":false},{"key":"l-2","discarded":true}]}`)
		if f.receipt.String() != receipt.String() || f.wait != 1500*time.Millisecond || !f.minAsOf.Equal(time.Date(2026, 11, 21, 4, 4, 3, 5e8, time.UTC)) {
			t.Errorf("%s %s: the reader got %v, wait %v, min_as_of %v", tc.method, tc.path, f.receipt, f.wait, f.minAsOf)
		}
		for err, want := range map[error]struct {
			status           int
			says, retryAfter string
		}{
			countmill.ErrNotCountedYet:  {409, `:not-counted-yet"`, "1"},
			countmill.ErrReceiptExpired: {410, `:receipt-expired"`, ""},
			countmill.ErrOtherDatabase:  {410, `:other-database"`, ""},
		} {
			f.err = fmt.Errorf("%w: more words", err)
			status, text, header := s.call(t, tc.method, tc.path+"after="+receipt.String(), tc.body)
			if status != want.status || !strings.Contains(text, want.says) || header.Get("Retry-After") != want.retryAfter {
				t.Errorf("%s %s, %v: got %d %s, Retry-After %q, want %+v", tc.method, tc.path, err, status, text, header.Get("Retry-After"), want)
			}
		}
	}
}

// Page by page, a limited caller lists exactly its counters under the prefix, each once and in
// order, with any limit.
func TestListIsLimitedToPrefixes(t *testing.T) {
	t.Parallel()
	names := []string{"a", "app:1", "app:2", "app:3", "b:1", "page", "page:/", "page:/a", "page:/b", "shop:1", "z:1", "z:2"}
	f := ones(names...)
	f.overflow["app:3"], f.overflow["page:/a"] = true, true
	s := ask(t, api.Services{Reader: f}, api.Config{})
	for _, prefixes := range [][]string{{"app:"}, {"z:", "app:"}, {"page:/", "b:", "page:", "none:", "z"}, {"nothing", "zz"}, {"app:", "page:/a", "shop:1"}} {
		for _, prefix := range []string{"", "a", "app:", "p", "page:/a"} {
			var want []string
			for _, name := range names {
				if mine := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }); mine && strings.HasPrefix(name, prefix) {
					want = append(want, name)
				}
			}
			for _, limit := range []int{1, 2, 3, 100} {
				got, status := listAll(t, s.of(t, prefixes...), prefix, limit)
				if status == http.StatusForbidden && want == nil {
					continue // no counter of the caller's can begin so
				}
				if diff := cmp.Diff(want, got); diff != "" || status != 200 {
					t.Errorf("%q under %q, %d a page: status %d, differs (-want +got):\n%s", prefixes, prefix, limit, status, diff)
				}
			}
		}
	}
}

// listAll follows the page tokens to the end.
func listAll(t *testing.T, s surface, prefix string, limit int) (names []string, status int) {
	t.Helper()
	for token := ""; ; {
		status, text, _ := s.call(t, "GET", fmt.Sprintf("/v1/counters?prefix=%s&limit=%d%s", prefix, limit, token), "")
		var page struct {
			Totals     []struct{ Counter string }
			Overflowed []string
			Next       string `json:"next_page_token"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil || status != 200 {
			return names, status
		}
		these := page.Overflowed
		for _, total := range page.Totals {
			these = append(these, total.Counter)
		}
		if len(these) > limit || len(names) > 100 {
			t.Fatalf("a page of %d holds %q after %q", limit, these, names)
		}
		slices.Sort(these)
		names = append(names, these...)
		if page.Next == "" {
			return names, 200
		}
		token = "&page_token=" + page.Next
	}
}
