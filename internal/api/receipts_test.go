package api_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/wire"
)

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
		{"GET", "/v1/totals?counter=a&", ""},
		{"GET", "/v1/counters/a?", ""},
		{"POST", "/v1/totals?", `{"counters":["a"]}`},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.deadLetters = []reader.DeadLetterRef{{Key: "l-1"}, {Key: "l-2", Discarded: true}}
			srv, _ := start(t, f, api.Config{})
			url := srv.URL + tc.path + "wait=1500ms&min_as_of=2026-11-21T04:04:03.5Z&after=" + receipt.String()
			status, got, _ := call(t, tc.method, url, tc.body, "Content-Type", "application/json")
			const want = `"dead_letters":[{"key":"l-1","discarded":false},{"key":"l-2","discarded":true}]}`
			if status != 200 || !strings.HasSuffix(got, want) {
				t.Errorf("got %d %s, want 200 and at its end %s", status, got, want)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.receipt.String() != receipt.String() || f.wait != 1500*time.Millisecond || !f.minAsOf.Equal(time.Date(2026, 11, 21, 4, 4, 3, 5e8, time.UTC)) {
				t.Errorf("the reader got %v, wait %v, min_as_of %v", f.receipt, f.wait, f.minAsOf)
			}
		})
	}
}

func TestReceiptProblems(t *testing.T) {
	t.Parallel()
	receipt := aReceipt().String()
	for name, tc := range map[string]struct {
		err        error
		query      string
		status     int
		word       string // in the problem
		retryAfter string
	}{
		"not counted yet":   {countmill.ErrNotCountedYet, "after=" + receipt, 409, `:not-counted-yet"`, "1"},
		"expired":           {countmill.ErrReceiptExpired, "after=" + receipt, 410, `:receipt-expired"`, ""},
		"another database":  {countmill.ErrOtherDatabase, "after=" + receipt, 410, `:other-database"`, ""},
		"wait alone":        {nil, "wait=1s", 400, `"field":"wait"`, ""},
		"wait too long":     {nil, "wait=5001ms&after=" + receipt, 400, `"field":"wait"`, ""},
		"wait negative":     {nil, "wait=-1s&after=" + receipt, 400, `"field":"wait"`, ""},
		"wait not a time":   {nil, "wait=2&after=" + receipt, 400, `"field":"wait"`, ""},
		"no receipt":        {nil, "after=", 400, `"field":"after"`, ""},
		"a damaged receipt": {nil, "after=" + receipt[:len(receipt)-1] + "_", 400, `"field":"after"`, ""},
		"min_as_of":         {nil, "min_as_of=yesterday", 400, `"field":"min_as_of"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			if tc.err != nil {
				f.fail(fmt.Errorf("%w: more words", tc.err))
			}
			srv, _ := start(t, f, api.Config{})
			status, got, header := call(t, "GET", srv.URL+"/v1/totals?counter=a&"+tc.query, "")
			if status != tc.status || !strings.Contains(got, tc.word) || header.Get("Retry-After") != tc.retryAfter {
				t.Errorf("got %d %s, Retry-After %q; want %d with %s, Retry-After %q", status, got, header.Get("Retry-After"), tc.status, tc.word, tc.retryAfter)
			}
		})
	}
}

// slowReader holds every request that waits for a receipt until the test ends.
type slowReader struct {
	*fakeReader
	waits chan struct{}
}

func (r *slowReader) TotalsAfter(ctx context.Context, _ []string, _ wire.Receipt, _ time.Duration, _ time.Time) (reader.After, error) {
	r.waits <- struct{}{}
	<-ctx.Done()
	return reader.After{}, ctx.Err()
}

// One caller cannot take all places where requests wait; a request that does not wait needs none.
func TestOneCallerCannotWaitEverywhere(t *testing.T) {
	t.Parallel()
	r := &slowReader{newFake(), make(chan struct{}, 1000)}
	a := serve(api.Services{Reader: r}, api.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	ask := func(ctx context.Context, from, query string) int {
		w := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(ctx, "GET", "/v1/totals?counter=a&after="+aReceipt().String()+query, nil)
		req.RemoteAddr = from
		a.ServeHTTP(w, req)
		return w.Code
	}
	done := make(chan int, 1000)
	refused, waiting := 0, 0
	for refused == 0 && waiting < 1000 {
		go func() { done <- ask(ctx, "192.0.2.1:1", "&wait=5s") }()
		select {
		case <-r.waits:
			waiting++
		case code := <-done:
			if refused++; code != 429 {
				t.Fatalf("request %d is answered %d, want 429", waiting+1, code)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a request neither waits nor is refused")
		}
	}
	if refused == 0 || waiting < 10 {
		t.Fatalf("%d requests of one caller wait, %d are refused", waiting, refused)
	}
	for _, other := range []struct{ from, query string }{{"192.0.2.2:1", "&wait=5s"}, {"192.0.2.1:1", ""}} {
		go func() { done <- ask(ctx, other.from, other.query) }()
		select {
		case <-r.waits:
			waiting++
		case code := <-done:
			t.Errorf("%v is answered %d, want that it reaches the reader", other, code)
		case <-time.After(10 * time.Second):
			t.Fatal("a request neither waits nor is refused")
		}
	}
	cancel()
	for range waiting {
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("requests wait after their contexts ended")
		}
	}
	short, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	if code := ask(short, "192.0.2.1:1", "&wait=5s"); len(r.waits) == 0 {
		t.Errorf("the places of requests that ended are not free: %d", code)
	}
}

// unseen is in an answer if the bus can say it.
func TestUnseen(t *testing.T) {
	t.Parallel()
	known := func() time.Duration { return 1500 * time.Millisecond }
	for _, tc := range []struct {
		unseen func() time.Duration
		want   string
	}{{known, `,"unseen":1.5}`}, {nil, `"lag":`}} {
		w := httptest.NewRecorder()
		serve(api.Services{Reader: newFake(), Unseen: tc.unseen}, api.Config{}).ServeHTTP(w, httptest.NewRequest("GET", "/v1/totals?counter=a", nil))
		if got := w.Body.String(); !strings.Contains(got, tc.want) || strings.Contains(got, "unseen") != (tc.unseen != nil) {
			t.Errorf("got %s, want %s, and unseen: %t", got, tc.want, tc.unseen != nil)
		}
	}
}
