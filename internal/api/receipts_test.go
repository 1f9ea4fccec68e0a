package api_test

import (
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
