package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// A taker is a bus that takes everything.
type taker struct{ api.Sender }

func (taker) Publish(context.Context, ...countmill.Increment) (publisher.Sent, error) {
	return publisher.Sent{}, nil
}

// sharing is requests that take a share of each resource of the table, "METHOD target body" in a line.
var sharing = map[string]string{
	"bytes of bodies of increments":                     "POST /v1/increments [" + strings.Repeat(`{"counter":"a"},`, 999) + `{"counter":"a"}]`,
	"bytes of other bodies":                             `POST /v1/totals {"counters":[` + strings.Repeat(`"a",`, 999) + strings.Repeat(" ", 4096) + `"a"]}`,
	"watchers":                                          "HEAD /v1/watch?counter=a ",
	"watched counters":                                  "HEAD /v1/watch?counter=a ",
	"requests that wait for receipts":                   "GET /v1/totals?counter=a&wait=1s&after=" + wire.Receipt{Time: asOf, Spans: []wire.Span{{Flush: wire.FlushHash{1}}}}.String() + " ",
	"answers with metrics of counters":                  "GET /metrics/counters?match=a ",
	"series that are being read":                        "GET /v1/series?counter=a ",
	"requests that wait for boards":                     "GET /v1/top?index=sites ",
	"requests for shards, journal and other records":    "GET /v1/shards?counter=a \nGET /v1/journal?counter=a \nGET /v1/dead-letters \nGET /v1/indexes \nGET /v1/sequences?sequence=a ",
	"badges that are being read":                        "GET /badge/a.svg ",
	"bytes of large answers that clients have not read": "GET /metrics/counters?match=a ",
	"calls for values of sequences":                     `POST /v1/sequences/next {"sequence":"a"}`,
}

// A caller that has taken all that it gets of a resource is refused, and another caller is not. So it is with every resource of
// the table: those that are shared elsewhere name the test of that.
func TestEveryResourceIsShared(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for n, r := range api.Shared() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(page, "\n"+r.Row+"\n") {
				t.Errorf("docs/reference/limits.md has no row %s", r.Row)
			}
			if r.Tested != "" {
				wantTest(t, r.Tested)
				return
			}
			st := protocoltest.New(protocoltest.Options{})
			h := serve(api.Services{
				Reader: newFake(), Sequences: &fakeSequences{}, Sender: taker{}, Admin: &fakeAdmin{},
				Verifier: admin.NewVerifier(st, st), Journal: admin.NewJournal(st, time.Minute), DeadLetters: admin.NewDeadLetters(st),
			}, api.Config{})
			if sharing[r.Name] == "" {
				t.Fatal("no request takes a share of it")
			}
			defer h.CloseStreams()
			got := h.TakeAll(n, "greedy")
			if got == 0 || got >= r.Most {
				t.Errorf("one caller gets %d of %d, want a part", got, r.Most)
			}
			for line := range strings.SplitSeq(sharing[r.Name], "\n") {
				for _, caller := range []string{"greedy", "other"} {
					code, answer := shared(t, authtest.As(t, h, caller), line)
					if refused := code == http.StatusTooManyRequests; refused != (caller == "greedy") {
						t.Errorf("%s of the %s caller was answered with %d %s", line, caller, code, answer)
					}
				}
			}
		})
	}
}

// shared sends a request of sharing.
func shared(t *testing.T, h http.Handler, line string) (code int, answer string) {
	t.Helper()
	method, rest, _ := strings.Cut(line, " ")
	target, body, _ := strings.Cut(rest, " ")
	req := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(&unlimited{w}, req)
	return w.Code, w.Body.String()
}

// unlimited is a writer that takes deadlines.
type unlimited struct{ *httptest.ResponseRecorder }

func wantTest(t *testing.T, tested string) {
	t.Helper()
	file, test, _ := strings.Cut(tested, " ")
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "func "+test+"(") {
		t.Errorf("%s has no %s (%v)", file, test, err)
	}
}
