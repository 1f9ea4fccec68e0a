package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

var asOf = time.Date(2026, 11, 21, 5, 4, 3, 120_000_999, time.FixedZone("", 3600))

// A fakeReader has counters by name.
type fakeReader struct {
	mu       sync.Mutex
	counters map[string]int64
	pipeline reader.Pipeline
	busiest  []store.Busy
	fleet    []store.Worker
	page     reader.Page
	err      error
	moving   bool // AsOf differs at every read, as a real reader's does
	reads    int64

	asked        []string
	maxStaleness time.Duration
	minAsOf      time.Time
	receipt      wire.Receipt
	wait         time.Duration
	deadLetters  []reader.DeadLetterRef
	listed       [3]any

	query     reader.SeriesQuery // of the last call of Series
	series    reader.Series
	seriesErr error

	boards fakeBoards
}

func (f *fakeReader) set(counter string, total int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counters[counter] = total
}

func (f *fakeReader) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeReader) TotalsSince(_ context.Context, counters []string, maxStaleness time.Duration, minAsOf time.Time) ([]reader.Total, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.maxStaleness, f.minAsOf = counters, maxStaleness, minAsOf
	for i, name := range counters {
		if err := countmill.CheckName(name); err != nil {
			field := err.(*countmill.FieldError)
			if len(counters) > 1 {
				field.Index = &i
			}
			return nil, field
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	var totals []reader.Total
	f.reads++
	at := asOf
	if f.moving {
		at = asOf.Add(time.Duration(f.reads) * time.Millisecond)
	}
	for _, name := range counters {
		total, ok := f.counters[name]
		shards := 0
		if ok {
			shards = 3
		}
		totals = append(totals, reader.Total{Counter: name, Total: total, AsOf: at, Source: "store", Shards: shards, Exists: ok})
	}
	return totals, nil
}

func (f *fakeReader) TotalsAfter(ctx context.Context, counters []string, receipt wire.Receipt, wait time.Duration, minAsOf time.Time) (reader.After, error) {
	totals, err := f.TotalsSince(ctx, counters, 0, minAsOf)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.receipt, f.wait = receipt, wait
	return reader.After{Totals: totals, DeadLetters: f.deadLetters}, err
}

func (f *fakeReader) ListSince(_ context.Context, prefix, after string, limit int, minAsOf time.Time) (reader.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed, f.minAsOf = [3]any{prefix, after, limit}, minAsOf
	return f.page, f.err
}

func (f *fakeReader) Series(_ context.Context, q reader.SeriesQuery) (reader.Series, error) {
	f.query = q
	return f.series, f.seriesErr
}

func (f *fakeReader) Pipeline(context.Context) reader.Pipeline {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pipeline
}

func (f *fakeReader) Busiest(context.Context) []store.Busy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.busiest
}

func (f *fakeReader) Fleet(context.Context) []store.Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fleet
}

// A fakeAPI is an API with its router.
type fakeAPI struct {
	*api.API
	*httpserver.Router
}

// serve is the API of services.
func serve(s api.Services, cfg api.Config) *fakeAPI {
	a := api.New(s, cfg)
	rt := httpserver.NewRouter(nil)
	a.Register(rt)
	return &fakeAPI{a, rt}
}

func newReader(f api.Reader, cfg api.Config) *fakeAPI { return serve(api.Services{Reader: f}, cfg) }

// start serves a handler over a connection, and closes it at the end.
func start(tb testing.TB, f api.Reader, cfg api.Config) (*httptest.Server, *fakeAPI) {
	tb.Helper()
	h := newReader(f, cfg)
	srv := httptest.NewServer(h)
	tb.Cleanup(srv.Close)
	tb.Cleanup(h.CloseStreams)
	return srv, h
}

// call returns the status and the body of an answer.
func call(tb testing.TB, method, url, body string, header ...string) (int, string, http.Header) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute) // a stream, where an error was to come, has no end
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	if method != http.MethodHead {
		checkAnswer(tb, req, resp, text)
	}
	return resp.StatusCode, strings.TrimSuffix(string(text), "\n"), resp.Header
}

// checkAnswer holds every answer of these tests against the OpenAPI document.
func checkAnswer(tb testing.TB, req *http.Request, resp *http.Response, body []byte) {
	tb.Helper()
	pattern := req.URL.EscapedPath()
	if strings.HasPrefix(pattern, "/v1/counters/") {
		pattern = "/v1/counters/{name}"
	}
	if strings.HasPrefix(pattern, "/badge/") {
		pattern = "/badge/{name}"
	}
	apitest.Load(tb).CheckAnswer(tb, req.Method, pattern, resp.StatusCode, resp.Header, body)
}

func newFake() *fakeReader {
	return &fakeReader{
		counters: map[string]int64{"a": 7, "a//b": 1, "https://x.org/p": 2, "a/../b": 3, "a/b": 4, "b": 5, "<&>": 6, "big": math.MaxInt64, "neg": math.MinInt64},
		pipeline: reader.Pipeline{Workers: 1, Lag: 120500 * time.Microsecond},
	}
}

const tail = `"as_of":"2026-11-21T04:04:03.120000Z","source":"store","shards":3,"exists":true}`

func TestAnswers(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.page = reader.Page{Totals: []reader.Total{{Counter: "a", Total: 7, AsOf: asOf, Source: "store", Shards: 3, Exists: true}}, Next: "a", Overflowed: []string{"o"}}
	srv, _ := start(t, f, api.Config{})
	const absent = `{"counter":"x","total":0,"as_of":"2026-11-21T04:04:03.120000Z","source":"store","shards":0,"exists":false}`
	for _, tc := range []struct{ method, path, body, want string }{
		{"GET", "/v1/totals?counter=a", "", `{"totals":[{"counter":"a","total":7,` + tail + `],"lag":0.1205}`},
		{"GET", "/v1/totals?counter=x&counter=a&counter=x", "", `{"totals":[` + absent + `,{"counter":"a","total":7,` + tail + `,` + absent + `],"lag":0.1205}`},
		{"GET", "/v1/totals?counter=%3C%26%3E", "", `{"totals":[{"counter":"<&>","total":6,` + tail + `],"lag":0.1205}`},
		{"GET", "/v1/totals?counter=big&counter=neg", "", `{"totals":[{"counter":"big","total":9223372036854775807,` + tail + `,{"counter":"neg","total":-9223372036854775808,` + tail + `],"lag":0.1205}`},
		{"GET", "/v1/totals?counter=big&format=string", "", `{"totals":[{"counter":"big","total":"9223372036854775807",` + tail + `],"lag":0.1205}`},
		{"POST", "/v1/totals?format=number", `{"counters":["a"]}`, `{"totals":[{"counter":"a","total":7,` + tail + `],"lag":0.1205}`},
		{"GET", "/v1/counters/a", "", `{"counter":"a","total":7,` + tail[:len(tail)-1] + `,"lag":0.1205}`},
		{"GET", "/v1/counters/a%2F%2Fb", "", `{"counter":"a//b","total":1,` + tail[:len(tail)-1] + `,"lag":0.1205}`},
		{"GET", "/v1/counters/https:%2F%2Fx.org%2Fp", "", `{"counter":"https://x.org/p","total":2,` + tail[:len(tail)-1] + `,"lag":0.1205}`},
		{"GET", "/v1/counters/a%2F..%2Fb?format=string", "", `{"counter":"a/../b","total":"3",` + tail[:len(tail)-1] + `,"lag":0.1205}`},
		{"GET", "/v1/totals?counter=a//b&counter=a/../b&counter=https://x.org/p", "", `{"totals":[{"counter":"a//b","total":1,` + tail + `,{"counter":"a/../b","total":3,` + tail + `,{"counter":"https://x.org/p","total":2,` + tail + `],"lag":0.1205}`},
		{"GET", "/v1/counters", "", `{"totals":[{"counter":"a","total":7,` + tail + `],"overflowed":["o"],"next_page_token":"MWE","lag":0.1205}`},
	} {
		status, got, header := call(t, tc.method, srv.URL+tc.path, tc.body, "Content-Type", "application/json")
		if status != 200 || got != tc.want || header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s\ngot  %d %s\nwant 200 %s", tc.method, tc.path, status, got, tc.want)
		}
	}
	f.mu.Lock()
	f.pipeline = reader.Pipeline{}
	f.page = reader.Page{}
	f.mu.Unlock()
	if _, got, _ := call(t, "GET", srv.URL+"/v1/counters/a", ""); !strings.HasSuffix(got, `,"lag":null}`) {
		t.Errorf("without aggregators the answer is %s, want lag null", got)
	}
	if _, got, _ := call(t, "GET", srv.URL+"/v1/counters", ""); got != `{"totals":[],"lag":null}` {
		t.Errorf("an empty page is %s", got)
	}
}

// A name is never split. If a name looks like a list and no counter has it, the answer has a
// hint.
func TestAListOfNamesIsOneName(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.set("x,y", 3)
	srv, _ := start(t, f, api.Config{})
	for _, tc := range []struct {
		method, path, body string
		hint               bool
	}{
		{"GET", "/v1/totals?counter=a,b", "", true},
		{"GET", "/v1/counters/a,b", "", true},
		{"POST", "/v1/totals", `{"counters":["a,b"]}`, true},
		{"GET", "/v1/totals?counter=x,y", "", false},
		{"GET", "/v1/totals?counter=a&counter=nobody", "", false},
	} {
		status, got, _ := call(t, tc.method, srv.URL+tc.path, tc.body, "Content-Type", "application/json")
		if status != 200 || strings.Contains(got, `,"hint":"this is one name with a comma in it;`) != tc.hint {
			t.Errorf("%s %s: got %d %s, want a hint: %t", tc.method, tc.path, status, got, tc.hint)
		}
	}
}

func TestParametersReachTheReader(t *testing.T) {
	t.Parallel()
	f := newFake()
	srv, _ := start(t, f, api.Config{})
	for param, want := range map[string]time.Duration{"": -1, "&max_staleness=2s": 2 * time.Second, "&max_staleness=0": 0, "&max_staleness=1h30m": 90 * time.Minute} {
		call(t, "GET", srv.URL+"/v1/totals?counter=a"+param, "")
		if f.maxStaleness != want {
			t.Errorf("%q: the reader was asked for %s, want %s", param, f.maxStaleness, want)
		}
	}
	f.page.Next = "b/2"
	_, first, _ := call(t, "GET", srv.URL+"/v1/counters?prefix=b/&limit=2", "")
	if want := [3]any{"b/", "", 2}; f.listed != want {
		t.Errorf("the reader was asked for %v, want %v", f.listed, want)
	}
	var page struct {
		Next string `json:"next_page_token"`
	}
	if err := json.Unmarshal([]byte(first), &page); err != nil {
		t.Fatal(err)
	}
	call(t, "GET", srv.URL+"/v1/counters?prefix=b/&page_token="+page.Next, "")
	if want := [3]any{"b/", "b/2", 100}; f.listed != want {
		t.Errorf("with the token %q the reader was asked for %v, want %v", page.Next, f.listed, want)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	srv, _ := start(t, newFake(), api.Config{})
	many := strings.Repeat("&counter=a", 101)
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string // part of the problem
	}{
		{"GET", "/v1/totals?counter=", "", 400, "counter is empty"},
		{"GET", "/v1/totals?counter=a&counter=__x__", "", 400, `"detail":"counter 1 (from 0): counter has the reserved form __x__`},
		{"GET", "/v1/totals?counter=a&counter=%FF", "", 400, `"index":1`},
		{"GET", "/v1/totals?" + many[1:], "", 400, `"limit":"1 to 100"`},
		{"GET", "/v1/totals?counter=a&max_staleness=2", "", 400, "max_staleness is not a duration"},
		{"GET", "/v1/totals?counter=a&max_staleness=-2s", "", 400, "max_staleness is negative"},
		{"GET", "/v1/totals?counter=a&max_staleness=", "", 400, `"field":"max_staleness"`},
		{"GET", "/v1/totals?counter=%zz", "", 400, `"field":"query"`},
		{"POST", "/v1/totals", `{"counters":[]}`, 400, `"field":"counters"`},
		{"POST", "/v1/totals", `{}`, 400, `"field":"counters"`},
		{"POST", "/v1/totals", `{"counters":["a",null]}`, 400, "not an array of strings"},
		{"POST", "/v1/totals", `{"counters":["a",1]}`, 400, "not an array of strings"},
		{"POST", "/v1/totals", `{"counters":["a",""]}`, 400, `"index":1`},
		{"POST", "/v1/totals", `{"counters":["\ud800"]}`, 400, "is not JSON"},
		{"POST", "/v1/totals", "{\"counters\":[\"\xff\"]}", 400, "is not JSON"},
		{"POST", "/v1/totals", `{"counters":[` + strings.Repeat(`"a",`, 1000) + `"a"]}`, 400, "too many"},
		{"POST", "/v1/totals", strings.Repeat(" ", 8<<20+1), 413, "8388608 bytes"},
		{"GET", "/v1/counters?page_token=a", "", 400, `"field":"page_token"`},
		{"GET", "/v1/counters?page_token=", "", 400, `"field":"page_token"`},
		{"GET", "/v1/counters?page_token=MQ", "", 400, `"field":"page_token"`},
		{"GET", "/v1/counters/a/b", "", 404, "one path segment"},
		{"GET", "/v1/counters/%20a", "", 400, "space"},
		{"GET", "/v1/watch", "", 400, `"field":"counter"`},
		{"GET", "/v1/watch?counter=%20", "", 400, "space"},
		{"GET", "/v1/watch?counter=a&interval=1ms", "", 400, "100ms to 5s"},
		{"GET", "/v1/watch?counter=a&limit=5", "", 400, `"field":"limit","limit":"only with prefix"`},
		{"GET", "/v1/watch?prefix=a&counter=a", "", 400, `"field":"counter","limit":"prefix with limit, or counter with interval, max_staleness and min_as_of"`},
		{"GET", "/v1/watch?prefix=a&interval=1s", "", 400, `"field":"interval"`},
	} {
		status, got, header := call(t, tc.method, srv.URL+tc.path, tc.body, "Content-Type", "application/json")
		if status != tc.status || !strings.Contains(got, tc.want) || header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.80s %.40s: got %d %s, want %d with %s", tc.method, tc.path, tc.body, status, got, tc.status, tc.want)
		}
	}
}

func TestErrorsOfTheReader(t *testing.T) {
	t.Parallel()
	f := newFake()
	srv, _ := start(t, f, api.Config{})
	for _, tc := range []struct {
		err    error
		status int
		want   string
	}{
		{fmt.Errorf("%w: looking up: %w", countmill.ErrUnavailable, errors.New("secret")), 503, "urn:countmill:problem:unavailable"},
		{errors.New("secret"), 500, "internal"},
		{context.DeadlineExceeded, 503, "unavailable"},
	} {
		f.fail(tc.err)
		for _, path := range []string{"/v1/totals?counter=a", "/v1/counters/a", "/v1/counters", "/v1/watch?counter=a"} {
			status, got, header := call(t, "GET", srv.URL+path, "")
			if status != tc.status || !strings.Contains(got, tc.want) || strings.Contains(got, "secret") {
				t.Errorf("%s with %v: got %d %s, want %d with %s", path, tc.err, status, got, tc.status, tc.want)
			}
			if tc.status == 503 && header.Get("Retry-After") == "" {
				t.Errorf("%s with %v: no Retry-After", path, tc.err)
			}
		}
	}
}

// A counter whose total does not fit 64 bits has an error in its place, and the others their totals.
func TestTotalsBesideAnOverflow(t *testing.T) {
	t.Parallel()
	n := &overflowing{nameReader{fakeReader: newFakeOf(map[string]int64{"a": 7, "o": 1}), overflow: map[string]bool{"o": true}}}
	srv, _ := start(t, n, api.Config{})
	doc := apitest.Load(t)
	wants := func(what, text string) {
		t.Helper()
		if !strings.Contains(text, `{"counter":"o","total":null,"error":"urn:countmill:problem:overflow","as_of":`) || !strings.Contains(text, `{"counter":"a","total":7,`) {
			t.Errorf("%s: got %s, want a, and the error of o", what, text)
		}
	}
	for _, r := range [][3]string{{"GET", "?counter=o&counter=a", ""}, {"POST", "", `{"counters":["o","a"]}`}} {
		status, text, header := call(t, r[0], srv.URL+"/v1/totals"+r[1], r[2], "Content-Type", "application/json")
		doc.CheckAnswer(t, r[0], "/v1/totals", status, header, []byte(text))
		wants(r[0], text)
	}
	wants("a stream", firstEvent(t, srv.URL+"/v1/watch?counter=o&counter=a"))
	if status, text, _ := call(t, "GET", srv.URL+"/v1/counters/o", ""); status != 500 || !strings.Contains(text, `:overflow"`) || !strings.Contains(text, `counter \"o\"`) {
		t.Errorf("alone: got %d %s, want 500 overflow", status, text)
	}
}

// firstEvent is the first event of a stream.
func firstEvent(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
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
