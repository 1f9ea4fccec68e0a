package api_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

var asOf = time.Date(2026, 11, 21, 5, 4, 3, 120_000_999, time.FixedZone("", 3600))

const jsonType = "application/json"

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

// A surface is an API whose answers are compared with the document.
type surface struct{ http.Handler }

// ask is a surface of services.
func ask(t *testing.T, s api.Services, cfg api.Config) surface {
	t.Helper()
	a := serve(s, cfg)
	t.Cleanup(a.CloseStreams)
	return surface{a}
}

// of is the surface as a caller sees it whose token has prefixes.
func (s surface) of(t *testing.T, prefixes ...string) surface {
	t.Helper()
	return surface{authtest.As(t, s, "x", prefixes...)}
}

// call returns the status and the body of an answer. A body is JSON, unless a header says otherwise.
func (s surface) call(t *testing.T, method, path, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", jsonType)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, req)
	checkAnswer(t, req, rec.Code, rec.Header(), rec.Body.Bytes())
	return rec.Code, strings.TrimSuffix(rec.Body.String(), "\n"), rec.Header()
}

// checkAnswer holds every answer of these tests against the OpenAPI document.
func checkAnswer(t *testing.T, req *http.Request, status int, header http.Header, body []byte) {
	t.Helper()
	pattern := req.URL.EscapedPath()
	for _, prefix := range []string{"/v1/counters/", "/badge/", "/v1/dead-letters/"} {
		if strings.HasPrefix(pattern, prefix) && (req.Method != http.MethodPost) {
			pattern = prefix + "{name}"
		}
	}
	apitest.Load(t).CheckAnswer(t, req.Method, pattern, status, header, body)
}

func (s surface) want(t *testing.T, method, path, body string, status int, text string) {
	t.Helper()
	if got, answer, _ := s.call(t, method, path, body); got != status || !strings.Contains(answer, text) {
		t.Errorf("%s %.100s %.60s: got %d %s, want %d with %s", method, path, body, got, answer, status, text)
	}
}

// wantProblems sends requests ("METHOD path body") that must be refused, each with a part of its problem's text.
func (s surface) wantProblems(t *testing.T, status int, requests map[string]string) {
	t.Helper()
	for request, says := range requests {
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		s.want(t, method, path, body, status, says)
	}
}

// A fakeReader has counters by name, and counts the reads.
type fakeReader struct {
	mu       sync.Mutex
	counters map[string]int64
	overflow map[string]bool
	building map[string]bool // groups that do not serve
	deleting bool            // and why
	pipeline reader.Pipeline
	busiest  []store.Busy
	fleet    []store.Worker
	err      error
	live     bool          // totals are of now, not of asOf
	back     time.Duration // so much older, as those of a cache
	page     int           // most counters of a page; 0: as many as asked
	held     chan struct{} // reads wait until it is closed
	hangs    bool          // all reads but the first end with their context

	totals, lists int

	asked        []string
	maxStaleness time.Duration
	minAsOf      time.Time
	receipt      wire.Receipt
	wait         time.Duration
	deadLetters  []reader.DeadLetterRef

	query  reader.SeriesQuery
	series reader.Series

	board      reader.TopQuery
	ranked     []board.Ranked
	overflowed []string
}

func newFake() *fakeReader {
	f := newFakeOf(map[string]int64{"a": 7, "a//b": 1, "https://x.org/p": 2, "a/../b": 3, "a/b": 4, "b": 5, "<&>": 6, "big": math.MaxInt64, "neg": math.MinInt64})
	f.pipeline = reader.Pipeline{Workers: 1, Lag: 120500 * time.Microsecond}
	return f
}

func newFakeOf(counters map[string]int64) *fakeReader {
	return &fakeReader{counters: counters, overflow: make(map[string]bool), building: make(map[string]bool)}
}

// ones are counters with a total of 1.
func ones(names ...string) *fakeReader {
	f := newFakeOf(make(map[string]int64))
	f.pipeline = newFake().pipeline
	for _, name := range names {
		f.counters[name] = 1
	}
	return f
}

func (f *fakeReader) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeReader) set(counter string, total int64) {
	f.change(func() { f.counters[counter] = total })
}

func (f *fakeReader) fail(err error) { f.change(func() { f.err = err }) }

// reads returns how many reads there were since the call before.
func (f *fakeReader) reads() (totals, lists int) {
	f.change(func() { totals, lists, f.totals, f.lists = f.totals, f.lists, 0, 0 })
	return totals, lists
}

func (f *fakeReader) totalLocked(name string) reader.Total {
	total, ok := f.counters[name]
	t := reader.Total{Counter: name, Total: total, AsOf: asOf, Source: reader.SourceStore, Exists: ok}
	if f.live {
		t.AsOf = time.Now().Add(-f.back)
	}
	if ok {
		t.Shards = 3
	}
	return t
}

func (f *fakeReader) waits(ctx context.Context) error {
	f.mu.Lock()
	held := f.held
	if f.hangs && f.totals > 0 {
		held = make(chan struct{})
	}
	f.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", countmill.ErrUnavailable, ctx.Err())
	}
}

func (f *fakeReader) TotalsSince(ctx context.Context, counters []string, maxStaleness time.Duration, minAsOf time.Time) ([]reader.Total, error) {
	if err := f.waits(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.totals++
	f.asked, f.maxStaleness, f.minAsOf = counters, maxStaleness, minAsOf
	var err error
	ts := make([]reader.Total, len(counters))
	for i, name := range counters {
		if err := countmill.CheckName(name); err != nil {
			field := err.(*countmill.FieldError)
			if len(counters) > 1 {
				field.Index = &i
			}
			return nil, field
		}
		if f.building[name] {
			return nil, fmt.Errorf("reading: %w", &reader.NotServingError{Group: name, Index: "sites", Deleting: f.deleting})
		}
		if ts[i] = f.totalLocked(name); f.overflow[name] {
			ts[i].Total, ts[i].Overflow, err = 0, true, &reader.OverflowError{Counter: name}
		}
	}
	return ts, cmp.Or(f.err, err)
}

func (f *fakeReader) TotalsAfter(ctx context.Context, counters []string, receipt wire.Receipt, wait time.Duration, minAsOf time.Time) (reader.After, error) {
	totals, err := f.TotalsSince(ctx, counters, 0, minAsOf)
	f.receipt, f.wait = receipt, wait
	return reader.After{Totals: totals, DeadLetters: f.deadLetters}, err
}

func (f *fakeReader) ListSince(ctx context.Context, prefix, after string, limit int, minAsOf time.Time) (reader.Page, error) {
	if err := f.waits(ctx); err != nil {
		return reader.Page{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	f.minAsOf = minAsOf
	var p reader.Page
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(f.counters)), func(name string) bool { return !strings.HasPrefix(name, prefix) || name <= after })
	if limit = min(limit, cmp.Or(f.page, limit)); len(names) > limit {
		names = names[:limit]
		p.Next = names[limit-1]
	}
	for _, name := range names {
		if f.overflow[name] {
			p.Overflowed = append(p.Overflowed, name)
		} else {
			p.Totals = append(p.Totals, f.totalLocked(name))
		}
	}
	return p, f.err
}

func (f *fakeReader) Series(_ context.Context, q reader.SeriesQuery) (reader.Series, error) {
	f.query = q
	for _, name := range q.Counters {
		if f.building[name] {
			return reader.Series{}, fmt.Errorf("reading: %w", &reader.NotServingError{Group: name, Index: "sites", Deleting: f.deleting})
		}
	}
	return f.series, f.err
}

func (f *fakeReader) Pipeline(context.Context) (p reader.Pipeline) {
	f.change(func() { p = f.pipeline })
	return p
}

func (f *fakeReader) Busiest(context.Context) []store.Busy { return f.busiest }
func (f *fakeReader) Fleet(context.Context) []store.Worker { return f.fleet }

var boardScan = reader.Scan{CompleteAsOf: time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)}

func (f *fakeReader) Top(_ context.Context, q reader.TopQuery) (reader.Top, error) {
	f.board = q
	top := reader.Top{Scan: boardScan, Overflowed: f.overflowed}
	for i, c := range f.ranked {
		top.Top = append(top.Top, reader.TopCounter{Ranked: c, Rank: i + 1})
	}
	return top, f.err
}

func (f *fakeReader) Rank(_ context.Context, q reader.BoardQuery, counter string) (reader.Rank, error) {
	f.board = reader.TopQuery{BoardQuery: q}
	rank := reader.Rank{Scan: boardScan, Counter: counter, Of: len(f.ranked)}
	if at := slices.IndexFunc(f.ranked, func(c board.Ranked) bool { return c.Counter == counter }); at >= 0 {
		rank.Rank, rank.Total = at+1, f.ranked[at].Sum
	}
	return rank, f.err
}
