package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

// A fakeReceiver counts the batches that it gets, and answers.
type fakeReceiver struct {
	mu   sync.Mutex
	got  int
	out  publisher.Outcome
	err  error
	wait bool // until the context ends

}

func (d *fakeReceiver) Send(ctx context.Context, _ *publisher.Delivery, _ time.Time) (publisher.Outcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got++
	if d.wait {
		<-ctx.Done()
	}
	return d.out, d.err
}

func newReceiver(t *testing.T, d *fakeReceiver, cfg IncrementsConfig) publisherAPI {
	t.Helper()
	moment := func() time.Time { return time.Date(2026, 11, 23, 7, 0, 0, 123456000, time.UTC) }
	a := New(Services{Sender: &recorder{}, BatchReceiver: d, Moment: moment}, Config{Roles: []string{"publisher"}, Increments: cfg})
	rt := httpserver.NewRouter(nil)
	a.Register(rt)
	return publisherAPI{a, rt}
}

// aBatch has a part of one increment for each counter.
func aBatch(at time.Time, counters ...string) string {
	b := wire.Batch{Time: at}
	for i, counter := range counters {
		b.Parts = append(b.Parts, wire.Part{ID: wire.PartID{0x10, byte(i)}, Entries: []wire.Entry{{Counter: counter, Delta: 1}}})
	}
	return string(wire.Append(nil, &b))
}

func sendBatch(h http.Handler, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v1/batches", strings.NewReader(body))
	r.Header.Set("Content-Type", typeBatch)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// wantRefusal checks a problem, and that nothing reached the bus.
func wantRefusal(t *testing.T, what string, d *fakeReceiver, w *httptest.ResponseRecorder, status int, word, field string) {
	t.Helper()
	var p httpserver.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != status || p.Type != "urn:countmill:problem:"+word || p.Field != field {
		t.Errorf("%s: got %d %s (%v), want %d %s with field %q", what, w.Code, w.Body, err, status, word, field)
	}
	if d.got > 0 {
		t.Errorf("%s: the bus got a batch", what)
	}
}

// The answer lists the parts that were not counted.
func TestBatchAnswer(t *testing.T) {
	t.Parallel()
	receipt := wire.Receipt{Time: time.UnixMicro(1_800_000_000_000_000), Spans: []wire.Span{{Flush: wire.FlushHash{9}}}}
	for want, out := range map[string]publisher.Outcome{
		`{"parts":2}`: {Parts: 2},
		`{"parts":3,"receipt":"` + receipt.String() + `"}`:                                                                        {Parts: 3, Sent: publisher.Sent{Receipt: receipt}},
		`{"parts":1,"counted_as_of":"2026-11-23T07:00:00.123456Z"}`:                                                               {Parts: 1, Sent: publisher.Sent{Counted: true}},
		`{"parts":4,"conflicts":[{"part":0,"reason":"id-reused"},{"part":3,"reason":"id-reused"},{"part":1,"reason":"expired"}]}`: {Parts: 4, Reused: []int{0, 3}, Expired: []int{1}},
	} {
		w := sendBatch(newReceiver(t, &fakeReceiver{out: out}, IncrementsConfig{}), aBatch(time.Now(), "a", "b"))
		if w.Code != http.StatusAccepted || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("got %d %s, want 202 %s", w.Code, w.Body, want)
		}
	}
}

// A refused batch is refused whole.
func TestBatchesAreRefusedWhole(t *testing.T) {
	t.Parallel()
	good := aBatch(time.Now(), "page:a")
	newer := "\x08\x7f" + good[2:]
	for _, tc := range []struct {
		what, body, contentType string
		status                  int
		word, field             string
	}{
		{"another type", good, "application/json", 415, "unsupported-media-type", "Content-Type"},
		{"no type", good, "", 415, "unsupported-media-type", "Content-Type"},
		{"nothing", "", typeBatch, 400, "invalid", ""},
		{"JSON", `{"counter":"page:a"}`, typeBatch, 400, "invalid", ""},
		{"cut off", good[:len(good)-1], typeBatch, 400, "invalid", ""},
		{"a newer version", newer, typeBatch, 400, "invalid", ""},
		{"too large", strings.Repeat("x", wire.MaxBatch+1), typeBatch, 413, "too-large", "body"},
		{"one counter of another", aBatch(time.Now(), "page:a", "shop:a"), typeBatch, 403, "forbidden", "counter"},
		{"too old", aBatch(time.Now().Add(-9*24*time.Hour), "page:a"), typeBatch, 400, "clock-skew", "time"},
		{"an hour ahead", aBatch(time.Now().Add(61*time.Minute), "page:a"), typeBatch, 400, "clock-skew", "time"},
		{"another's key", keyedBatch(t, "shop"), typeBatch, 403, "forbidden", "principal"},
	} {
		d := &fakeReceiver{}
		h := authtest.As(t, newReceiver(t, d, IncrementsConfig{}), "x", "page:")
		wantRefusal(t, tc.what, d, sendBatch(h, tc.body, "Content-Type", tc.contentType), tc.status, tc.word, tc.field)
	}
}

func keyedBatch(t *testing.T, principal string) string {
	t.Helper()
	parts, err := wire.CutRequest(principal, "k", []countmill.Increment{{Counter: "page:a", Delta: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return string(wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: parts}))
}

// A small batch does not wait for large bodies to be decoded.
func TestSmallBatchesPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(clock.Earliest)) // a bubble begins in the year 2000
		a := newReceiver(t, &fakeReceiver{}, IncrementsConfig{})
		for range cap(a.decoding) {
			a.decoding <- struct{}{}
		}
		if w := sendBatch(a, aBatch(time.Now(), "a")); w.Code != http.StatusAccepted {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	})
}

// A batch within the prefixes of its sender is sent. The position in a 403 is that of the part.
func TestBatchNamesThePartOutside(t *testing.T) {
	t.Parallel()
	if w := sendBatch(authtest.As(t, newReceiver(t, &fakeReceiver{}, IncrementsConfig{}), "x", "page:"), aBatch(time.Now(), "page:a", "page:b")); w.Code != http.StatusAccepted {
		t.Errorf("inside: got %d %s, want 202", w.Code, w.Body)
	}
	w := sendBatch(authtest.As(t, newReceiver(t, &fakeReceiver{}, IncrementsConfig{}), "x", "page:"), aBatch(time.Now(), "page:a", "page:b", "shop:a"))
	var p httpserver.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Index == nil || *p.Index != 2 {
		t.Errorf("got %s (%v), want index 2", w.Body, err)
	}
}

// A bus keeps the batches that it gets.
type bus struct{ got []*wire.Batch }

func (b *bus) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		batch, err := wire.Decode(m.Payload)
		if err != nil {
			return err
		}
		b.got = append(b.got, batch)
	}
	return nil
}

// In batches too, only scope admin counts in minutes long before the deduplication window.
func TestOnlyAdminsSendBatchesOfThePast(t *testing.T) {
	t.Parallel()
	past := wire.MinuteOf(time.Now().Add(-1000 * 24 * time.Hour))
	in := wire.Batch{Time: time.Now(), Parts: []wire.Part{{ID: wire.PartID{0x10, 1}, Minute: past, Entries: []wire.Entry{{Counter: "a", Delta: 1}}}}}
	for name, scopes := range map[string][]auth.Scope{"sender": {auth.Publish}, "mover": {auth.Publish, auth.Admin}} {
		b := &bus{}
		api := newReceiver(t, &fakeReceiver{}, IncrementsConfig{})
		api.services.BatchReceiver = publisher.NewBatchReceiver(b, "", wire.DatabaseTag{1})
		h := authtest.With(t, api, auth.Token{Name: name, Scopes: scopes})
		if w := sendBatch(h, string(wire.Append(nil, &in))); w.Code != http.StatusAccepted || len(b.got) != 1 {
			t.Fatalf("%s: got %d %s and %d batches on the bus, want 202 and 1", name, w.Code, w.Body, len(b.got))
		}
		if got := b.got[0].Minute(&b.got[0].Parts[0]); (got == past) != (name == "mover") {
			t.Errorf("%s: counts at %s", name, got.Time())
		}
	}
}

// A quota counts entries, and new names. A batch may overdraw it, and the next one waits.
func TestQuotasCountEntriesOfBatches(t *testing.T) {
	t.Parallel()
	for field, limits := range map[string]auth.Limits{
		"increments_per_second": {Increments: 2}, "bytes_per_second": {Bytes: 10}, "new_counters_per_hour": {NewCounters: 3},
	} {
		d := &fakeReceiver{}
		h := authtest.With(t, newReceiver(t, d, IncrementsConfig{}), auth.Token{Name: "x", Scopes: auth.Scopes(), Limits: limits})
		counters := make([]string, 50)
		for i := range counters {
			counters[i] = fmt.Sprint("c", i)
		}
		if w := sendBatch(h, aBatch(time.Now(), counters...)); w.Code != http.StatusAccepted {
			t.Errorf("%s: got %d %s, want 202", field, w.Code, w.Body)
		}
		d.got = 0
		w := sendBatch(h, aBatch(time.Now(), "other"))
		wantRefusal(t, field, d, w, http.StatusTooManyRequests, "quota", field)
		if w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", field)
		}
		if field == "new_counters_per_hour" {
			if w := sendBatch(h, aBatch(time.Now(), "c7")); w.Code != http.StatusAccepted {
				t.Errorf("a known name: got %d %s, want 202", w.Code, w.Body)
			}
		}
	}
}

// Errors of the bus are statuses, and a stop refuses batches.
func TestBatchErrors(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{
		countmill.ErrUnavailable: 503, countmill.ErrOutcomeUnknown: 504, errors.New("x"): 500,
	} {
		if w := sendBatch(newReceiver(t, &fakeReceiver{err: err}, IncrementsConfig{}), aBatch(time.Now(), "a")); w.Code != want || want == 503 && !strings.Contains(w.Body.String(), "an earlier one with the same key or ids may be counted") {
			t.Errorf("%v: got %d %s, want %d", err, w.Code, w.Body, want)
		}
	}
	full := newReceiver(t, &fakeReceiver{}, IncrementsConfig{Admit: func() error { return httpserver.NewProblem(http.StatusInsufficientStorage, "x", "x", "x") }})
	if w := sendBatch(full, aBatch(time.Now(), "a")); w.Code != http.StatusInsufficientStorage {
		t.Errorf("without disk: got %d, want 507", w.Code)
	}
	slow := &fakeReceiver{wait: true, err: countmill.ErrOutcomeUnknown}
	if w := sendBatch(newReceiver(t, slow, IncrementsConfig{Timeout: time.Millisecond}), aBatch(time.Now(), "a")); w.Code != 504 {
		t.Errorf("a slow bus: got %d, want 504", w.Code)
	}
	d := &fakeReceiver{}
	stopped := newReceiver(t, d, IncrementsConfig{})
	if left := stopped.StopIncrements(t.Context()); left != 0 {
		t.Errorf("%d requests are left", left)
	}
	wantRefusal(t, "while it stops", d, sendBatch(stopped, aBatch(time.Now(), "a")), 503, "closed", "")
}

// Bodies of batches share the bound of all increments.
func TestBatchesShareTheMemoryOfIncrements(t *testing.T) {
	t.Parallel()
	a := newReceiver(t, &fakeReceiver{}, IncrementsConfig{MaxPending: 1, MaxBody: 4096})
	if w := sendBatch(a, aBatch(time.Now(), strings.Repeat("x", 500))); w.Code != http.StatusAccepted {
		t.Errorf("a small batch: got %d %s", w.Code, w.Body)
	}
	if diff := cmp.Diff(0, a.pools[bodiesSent].Used()); diff != "" {
		t.Errorf("bytes are held after the answer: %s", diff)
	}
	w := sendBatch(a, strings.Repeat("x", 100_000))
	if w.Code != http.StatusTooManyRequests {
		t.Errorf("a batch beyond the bound: got %d %s, want 429", w.Code, w.Body)
	}
}
