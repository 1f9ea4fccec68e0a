package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// A folder is a sender whose increments are in the totals of the reader when it returns.
type folder struct {
	*fakeReader
	err error
}

func (f folder) Publish(_ context.Context, incs ...countmill.Increment) (publisher.Sent, error) {
	for _, inc := range incs {
		f.mu.Lock()
		f.counters[inc.Counter] += inc.Delta
		f.mu.Unlock()
	}
	return publisher.Sent{Counted: true}, f.err
}

func (f folder) PublishPast(ctx context.Context, at time.Time, _, _ string, incs ...countmill.Increment) (publisher.Sent, error) {
	return f.Publish(ctx, append(incs, countmill.Increment{Counter: "past " + at.Format(time.RFC3339), Delta: 1})...)
}

func (f folder) PublishKeyed(ctx context.Context, _, _ string, incs ...countmill.Increment) (publisher.Sent, error) {
	return f.Publish(ctx, incs...)
}

func TestTotalsComeWithTheAnswer(t *testing.T) {
	t.Parallel()
	f := newFake()
	s := ask(t, api.Services{Sender: folder{f, nil}, Reader: f, Folded: true}, api.Config{})
	const lines = "application/x-ndjson"
	for _, tc := range []struct{ query, contentType, body, want string }{
		{"?return=totals", jsonType, `{"counter":"a"}`, `{"accepted":1,"totals":[{"counter":"a","total":8,` + tail + `]}`},
		{"?return=totals", jsonType, `[{"counter":"b","delta":2},{"counter":"a","delta":-1},{"counter":"b"}]`,
			`{"accepted":3,"totals":[{"counter":"b","total":8,` + tail + `,{"counter":"a","total":7,` + tail + `]}`},
		{"?return=totals&format=string", lines, `{"counter":"a"}` + "\n" + `{"counter":"a"}`, `{"accepted":2,"totals":[{"counter":"a","total":"9",` + tail + `]}`},
		{"?format=number&return=totals", jsonType, `{"counter":"new"}`, `{"accepted":1,"totals":[{"counter":"new","total":1,` + tail + `]}`},
		{"", jsonType, `{"counter":"a"}`, `{"accepted":1}`},
	} {
		f.maxStaleness = -1
		status, got, _ := s.call(t, "POST", "/v1/increments"+tc.query, tc.body, "Content-Type", tc.contentType)
		if status != http.StatusAccepted || got != tc.want {
			t.Errorf("%s %s:\ngot  %d %s\nwant 202 %s", tc.query, tc.body, status, got, tc.want)
		}
		if tc.query != "" && f.maxStaleness != 0 {
			t.Errorf("%s: the reader was asked for totals of %s, want 0", tc.query, f.maxStaleness)
		}
	}
}

// held is a store whose look-ups wait.
type held struct {
	*protocoltest.Store
	until chan struct{}
}

type heldView struct {
	store.View
	until chan struct{}
}

func (h held) View() store.View { return heldView{h.Store.View(), h.until} }

func (h heldView) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	<-h.until
	return h.View.Lookup(ctx, keys)
}

// The totals of one caller leave room for those of another, as other reads do.
func TestReturnedTotalsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := held{protocoltest.New(protocoltest.Options{}), make(chan struct{})}
		r, err := reader.New(st, nil, reader.Config{KeysAtOnce: 1, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		s := serve(api.Services{Sender: folder{newFake(), nil}, Reader: r, Folded: true}, api.Config{})
		var all sync.WaitGroup
		var body strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&body, `{"counter":"c%d"}`+"\n", i)
		}
		send := func(from string) *httptest.ResponseRecorder {
			req := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/increments?return=totals", strings.NewReader(body.String()))
			req.Header.Set("Content-Type", "application/x-ndjson")
			req.RemoteAddr = from
			rec := httptest.NewRecorder()
			all.Go(func() { s.ServeHTTP(rec, req) })
			synctest.Wait()
			return rec
		}
		var greedy *httptest.ResponseRecorder
		for range 150 {
			greedy = send("greedy")
		}
		small := send("small")
		close(st.until)
		all.Wait()
		if got := greedy.Body.String(); !strings.Contains(got, `"totals":null`) {
			t.Fatalf("the last of one caller got %.200s, want no place in the line", got)
		}
		if got := small.Body.String(); !strings.Contains(got, `"totals":[`) {
			t.Errorf("another caller got %.200s, want totals", got)
		}
		s.CloseStreams()
	})
}

// Increments of the past need scope admin.
func TestThePastIsForAdmins(t *testing.T) {
	t.Parallel()
	if publisher.MaxPast != store.MaxKeep {
		t.Errorf("the publisher takes increments of the last %s, and series are kept for %s", publisher.MaxPast, store.MaxKeep)
	}
	for _, tc := range []struct {
		at     string
		admin  bool
		status int
		want   string
	}{
		{"2020-01-02T03:04:05Z", true, 202, ""},
		{"2020-01-02T03:04:05Z", false, 403, `"field":"at","limit":"with the scope admin"`},
		{"yesterday", true, 400, `"field":"at"`},
		{"0001-01-01T00:00:00Z", true, 400, `"field":"at"`},
	} {
		f := newFake()
		token := auth.Token{Name: "mover", Scopes: []auth.Scope{auth.Publish, auth.Admin}}
		if !tc.admin {
			token.Scopes = token.Scopes[:1]
		}
		s := surface{authtest.With(t, ask(t, api.Services{Sender: folder{f, nil}}, api.Config{}), token)}
		s.want(t, "POST", "/v1/increments?at="+tc.at, `{"counter":"a"}`, tc.status, tc.want)
		if done := tc.status == 202; (f.counters["a"] == 8) != done || (f.counters["past "+tc.at] == 1) != done {
			t.Errorf("%s: got totals %v", tc.at, f.counters)
		}
	}
}

// A refusal comes before anything is sent.
func TestTotalsThatCannotComeAreRefused(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range api.MaxBodyCounters + 1 {
		many = append(many, fmt.Sprintf(`{"counter":"c%d"}`, i), fmt.Sprintf(`{"counter":"c%d"}`, i))
	}
	f := newFake()
	all := api.Services{Sender: folder{f, nil}, Reader: f, Folded: true}
	s := ask(t, all, api.Config{})
	s.wantProblems(t, 400, map[string]string{
		`POST /v1/increments?return= {"counter":"a"}`:                         `"limit":"totals"`,
		`POST /v1/increments?format=string {"counter":"a"}`:                   `"field":"format"`,
		`POST /v1/increments?return=totals [` + strings.Join(many, ",") + "]": `"limit":"1000 counters in the request"`,
	})
	apart := all
	apart.Folded = false
	ask(t, apart, api.Config{}).want(t, "POST", "/v1/increments?return=totals", `{"counter":"a"}`, 400, "needs publisher, aggregator and reader in one process")
	token := auth.Token{Name: "blind", Scopes: []auth.Scope{auth.Publish}}
	surface{authtest.With(t, s, token)}.want(t, "POST", "/v1/increments?return=totals", `{"counter":"a"}`, 403, `"field":"return","limit":"with the scope read"`)
	if f.counters["a"] != 7 || f.counters["c1"] != 0 {
		t.Errorf("refused requests were counted: %v", f.counters)
	}
	token.Scopes = append(token.Scopes, auth.Read)
	surface{authtest.With(t, s, token)}.want(t, "POST", "/v1/increments?return=totals", `{"counter":"a"}`, 202, `"total":8,`)
	s.want(t, "POST", "/v1/increments?return=totals", "["+strings.Join(many[2:], ",")+"]", 202, `{"accepted":2000,"totals":[{"counter":"c1","total":2,`)
}

// An answer never says that counted increments were not.
func TestCountedWithoutTotals(t *testing.T) {
	t.Parallel()
	f := newFake()
	var log bytes.Buffer
	cfg := api.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	f.fail(errors.New("disk away"))
	ask(t, api.Services{Sender: folder{f, nil}, Reader: f, Folded: true}, cfg).want(t, "POST", "/v1/increments?return=totals", `{"counter":"a"}`, 202, `{"accepted":1,"totals":null}`)
	if !strings.Contains(log.String(), "disk away") {
		t.Errorf("the log is %q, want the reason", log.String())
	}
	refused := ask(t, api.Services{Sender: folder{f, countmill.ErrOverloaded}, Reader: f, Folded: true}, cfg)
	if status, got, _ := refused.call(t, "POST", "/v1/increments?return=totals", `{"counter":"a"}`); status != 429 || strings.Contains(got, "totals") {
		t.Errorf("refused: got %d %s, want 429", status, got)
	}
}

// Without room for a large answer a read is refused. Increments are counted then, and come without totals.
func TestLargeAnswersWithoutRoom(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(api.Services{Sender: folder{f, nil}, Reader: f, Folded: true}, api.Config{})
	h.TakeAll(slices.IndexFunc(api.Shared(), func(r api.Resource) bool { return strings.HasPrefix(r.Name, "bytes of large answers") }), "x")
	s := surface{h}.of(t)
	var incs, names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf(`"%0300d"`, i))
		incs = append(incs, `{"counter":`+names[i]+"}")
	}
	s.want(t, "POST", "/v1/increments?return=totals", "["+strings.Join(incs, ",")+"]", 202, `{"accepted":100,"totals":null}`)
	if got := f.counters[strings.Trim(names[99], `"`)]; got != 1 {
		t.Errorf("the last counter has %d, want 1", got)
	}
	s.want(t, "POST", "/v1/totals", `{"counters":[`+strings.Join(names, ",")+"]}", 429, ":overloaded")
	s.want(t, "GET", "/v1/counters?limit=1000", "", 429, ":overloaded")
	s.want(t, "GET", "/v1/counters?prefix=a", "", 200, "")
}
