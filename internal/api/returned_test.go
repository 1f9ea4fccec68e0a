package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store"
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

// askTotals sends increments to an API, with a token if it is not empty.
func askTotals(t *testing.T, h http.Handler, query, contentType, body, token string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/increments"+query, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	apitest.Load(t).CheckAnswer(t, http.MethodPost, "/v1/increments", w.Code, w.Header(), w.Body.Bytes())
	return w.Code, strings.TrimSuffix(w.Body.String(), "\n")
}

func TestTotalsComeWithTheAnswer(t *testing.T) {
	t.Parallel()
	f := newFake()
	h := serve(api.Services{Sender: folder{f, nil}, Reader: f, Folded: true}, api.Config{})
	const jsonType, lines = "application/json", "application/x-ndjson"
	for _, tc := range []struct{ query, contentType, body, want string }{
		{"?return=totals", jsonType, `{"counter":"a"}`, `{"accepted":1,"totals":[{"counter":"a","total":8,` + tail + `]}`},
		{"?return=totals", jsonType, `[{"counter":"b","delta":2},{"counter":"a","delta":-1},{"counter":"b"}]`,
			`{"accepted":3,"totals":[{"counter":"b","total":8,` + tail + `,{"counter":"a","total":7,` + tail + `]}`},
		{"?return=totals&format=string", lines, `{"counter":"a"}` + "\n" + `{"counter":"a"}`, `{"accepted":2,"totals":[{"counter":"a","total":"9",` + tail + `]}`},
		{"?format=number&return=totals", jsonType, `{"counter":"new"}`, `{"accepted":1,"totals":[{"counter":"new","total":1,` + tail + `]}`},
		{"", jsonType, `{"counter":"a"}`, `{"accepted":1}`},
	} {
		f.maxStaleness = -1
		status, got := askTotals(t, h, tc.query, tc.contentType, tc.body, "")
		if status != http.StatusAccepted || got != tc.want {
			t.Errorf("%s %s:\ngot  %d %s\nwant 202 %s", tc.query, tc.body, status, got, tc.want)
		}
		if tc.query != "" && f.maxStaleness != 0 {
			t.Errorf("%s: the reader was asked for totals of %s, want 0", tc.query, f.maxStaleness)
		}
	}
}

// Increments of the past need scope admin.
func TestThePastIsForAdmins(t *testing.T) {
	t.Parallel()
	if publisher.MaxPast != store.MaxKeep {
		t.Errorf("the publisher takes increments of the last %s, and series are kept for %s", publisher.MaxPast, store.MaxKeep)
	}
	tokens, secrets := authtest.Open(t,
		auth.Token{Name: "sender", Scopes: []auth.Scope{auth.Publish}},
		auth.Token{Name: "mover", Scopes: []auth.Scope{auth.Publish, auth.Admin}})
	for _, tc := range []struct {
		at, token string
		status    int
		want      string
	}{
		{"2020-01-02T03:04:05Z", secrets[1], 202, ""},
		{"2020-01-02T03:04:05Z", secrets[0], 403, "at needs the scope admin"},
		{"yesterday", secrets[1], 400, `"field":"at"`},
		{"0001-01-01T00:00:00Z", secrets[1], 400, `"field":"at"`},
	} {
		f := newFake()
		rt := serve(api.Services{Sender: folder{f, nil}}, api.Config{})
		rt.Guard(tokens, new(httpserver.Refusals))
		status, got := askTotals(t, rt, "?at="+tc.at, "application/json", `{"counter":"a"}`, tc.token)
		if status != tc.status || !strings.Contains(got, tc.want) || (f.counters["a"] == 8) != (status == 202) || (f.counters["past "+tc.at] == 1) != (status == 202) {
			t.Errorf("%s: got %d %s and totals %v, want %d with %q", tc.at, status, got, f.counters, tc.status, tc.want)
		}
	}
}

// A refusal comes before anything is sent.
func TestTotalsThatCannotComeAreRefused(t *testing.T) {
	t.Parallel()
	tokens, secrets := authtest.Open(t,
		auth.Token{Name: "blind", Scopes: []auth.Scope{auth.Publish}},
		auth.Token{Name: "seeing", Scopes: []auth.Scope{auth.Publish, auth.Read}})
	var many []string
	for i := range api.MaxBodyCounters + 1 {
		many = append(many, fmt.Sprintf(`{"counter":"c%d"}`, i), fmt.Sprintf(`{"counter":"c%d"}`, i))
	}
	for _, tc := range []struct {
		name, query, body, token string
		apart                    bool
		status                   int
		want                     string
	}{
		{"another word", "?return=lag", `{"counter":"a"}`, "", false, 400, `"field":"return"`},
		{"nothing", "?return=", `{"counter":"a"}`, "", false, 400, `"limit":"totals"`},
		{"twice", "?return=totals&return=totals", `{"counter":"a"}`, "", false, 400, `"field":"return"`},
		{"format alone", "?format=string", `{"counter":"a"}`, "", false, 400, `"field":"format"`},
		{"another format", "?return=totals&format=x", `{"counter":"a"}`, "", false, 400, `"field":"format"`},
		{"roles apart", "?return=totals", `{"counter":"a"}`, "", true, 400, "needs publisher, aggregator and reader in one process"},
		{"too many", "?return=totals", "[" + strings.Join(many, ",") + "]", "", false, 400, `"limit":"1000 counters in the request"`},
		{"no scope", "?return=totals", `{"counter":"a"}`, secrets[0], false, 403, "needs the scope read"},
		{"both scopes", "?return=totals", `{"counter":"a"}`, secrets[1], false, 202, `"total":8,`},
		{"as many as there may be", "?return=totals", "[" + strings.Join(many[2:], ",") + "]", "", false, 202, `{"accepted":2000,"totals":[{"counter":"c1","total":2,`},
	} {
		f := newFake()
		a := api.New(api.Services{Sender: folder{f, nil}, Reader: f, Folded: !tc.apart}, api.Config{})
		rt := httpserver.NewRouter(nil)
		if tc.token != "" {
			rt.Guard(tokens, new(httpserver.Refusals))
		}
		a.Register(rt)
		status, got := askTotals(t, rt, tc.query, "application/json", tc.body, tc.token)
		if status != tc.status || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %d %.200s, want %d with %s", tc.name, status, got, tc.status, tc.want)
		}
		if sent := f.counters["a"] != 7 || f.counters["c1"] != 0; sent != (status == 202) {
			t.Errorf("%s: got %d, sent: %t", tc.name, status, sent)
		}
	}
}

// An answer never says that counted increments were not.
func TestCountedWithoutTotals(t *testing.T) {
	t.Parallel()
	f := newFake()
	var log bytes.Buffer
	cfg := api.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	f.fail(errors.New("disk away"))
	h := serve(api.Services{Sender: folder{f, nil}, Reader: f, Folded: true}, cfg)
	status, got := askTotals(t, h, "?return=totals", "application/json", `{"counter":"a"}`, "")
	if want := `{"accepted":1,"totals":null}`; status != 202 || got != want {
		t.Errorf("got %d %s, want 202 %s", status, got, want)
	}
	if !strings.Contains(log.String(), "disk away") {
		t.Errorf("the log is %q, want the reason", log.String())
	}
	// Increments that are refused have no totals.
	h = serve(api.Services{Sender: folder{f, countmill.ErrOverloaded}, Reader: f, Folded: true}, cfg)
	if status, got := askTotals(t, h, "?return=totals", "application/json", `{"counter":"a"}`, ""); status != 429 || strings.Contains(got, "totals") {
		t.Errorf("refused: got %d %s, want 429", status, got)
	}
}
