package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
)

// serve runs a real countmill until the test ends.
func serve(t *testing.T) *client.Client {
	t.Helper()
	c, _ := serveAt(t)
	return c
}

// serveAt returns the address too.
func serveAt(t *testing.T) (*client.Client, string) {
	t.Helper()
	a, err := app.New(app.Config{Listen: "127.0.0.1:0", Store: "pebble:" + t.TempDir()})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return open(t, "http://"+a.Addr()), "http://" + a.Addr()
}

func open(t *testing.T, base string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(base, options...)
	must(t, err)
	return c
}

func total(t *testing.T, c *client.Client, counter string) int64 {
	t.Helper()
	got, err := c.Total(t.Context(), counter, client.WithMaxStaleness(0))
	must(t, err)
	return got.Total
}

func TestIncrementManySaysWhatWasLeftOut(t *testing.T) {
	t.Parallel()
	c, ctx := serve(t), t.Context()
	if err := c.Increment(ctx, countmill.Increment{Counter: "c7", Delta: 9, ID: "taken"}); err != nil {
		t.Fatal(err)
	}
	incs := make([]countmill.Increment, 25_000)
	for i := range incs {
		incs[i] = countmill.Increment{Counter: fmt.Sprint("c", i%10), Delta: 1}
	}
	must(t, c.IncrementMany(ctx, incs))
	if got := total(t, c, "c3"); got != 2500 {
		t.Errorf("got %d, want 2500", got)
	}
	incs[15_000] = countmill.Increment{Counter: "c7", Delta: 1, ID: "taken"}
	err := c.IncrementMany(ctx, incs)
	var many *client.ManyError
	if !errors.As(err, &many) || !errors.Is(err, countmill.ErrIDsReused) || many.Counted != len(incs) || many.Unwrap() != nil ||
		len(many.Conflicts) != 1 || many.Conflicts[0] != (countmill.Conflict{Position: 15_000, Counter: "c7", ID: "taken", Delta: 1}) {
		t.Errorf("an id that is taken: got %v, want all others counted and position 15000 named", err)
	}
	if got := total(t, c, "c3"); got != 5000 {
		t.Errorf("beside an id that is taken: got %d, want 5000", got)
	}
	incs[15_000] = countmill.Increment{Counter: "c0", Delta: 1}
	incs[3].Delta = 0
	err = c.IncrementMany(ctx, incs)
	if !errors.As(err, &many) || many.Counted != 0 || many.Size != 10_000 || !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("a delta of 0: got %v", err)
	}
	incs[3].Delta = 1
	incs[20_003].Delta = 0
	if err = c.IncrementMany(ctx, incs); !errors.As(err, &many) || many.Counted != 20_000 || many.Size != 5000 || many.Key == "" {
		t.Errorf("a delta of 0 in the third request: got %v", err)
	}
}

func TestListGoesOverPages(t *testing.T) {
	t.Parallel()
	c, ctx := serve(t), t.Context()
	incs := make([]countmill.Increment, 2300)
	for i := range incs {
		incs[i] = countmill.Increment{Counter: fmt.Sprintf("list:%04d", i), Delta: int64(i + 1)}
	}
	if err := c.IncrementMany(ctx, append(incs, countmill.Increment{Counter: "other", Delta: 1})); err != nil {
		t.Fatal(err)
	}
	n := 0
	for got, err := range c.List(ctx, "list:") {
		if err != nil || got.Counter != incs[n].Counter || got.Total != incs[n].Delta {
			t.Fatalf("entry %d: got %+v, %v", n, got, err)
		}
		n++
	}
	if n != len(incs) {
		t.Errorf("listed %d, want %d", n, len(incs))
	}
}

func TestAdminCalls(t *testing.T) {
	t.Parallel()
	c, ctx := serve(t), t.Context()
	// A process that has just begun is not ready yet.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := c.Ready(ctx)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if err := c.Increment(ctx, countmill.Increment{Counter: "..", Delta: 5}); err != nil {
		t.Fatal(err)
	}
	if err := c.Grow(ctx, "..", 7); err != nil {
		t.Error(err)
	}
	for range 2 {
		if r, err := c.Reset(ctx, "..", "once"); err != nil || r.Removed != 5 || r.AsOf.IsZero() {
			t.Errorf("got %+v, %v, want 5 removed", r, err)
		}
	}
	if r, err := c.Delete(ctx, ".."); err != nil || r.Removed != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	if err := c.Grow(ctx, "..", 7000); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("7000 shards: got %v, want ErrInvalid", err)
	}
}

// A script answers one request after the other.
type script struct {
	t      *testing.T
	base   string
	mu     sync.Mutex
	steps  []func(http.ResponseWriter)
	keys   []string
	bodies []string
	paths  []string
	done   chan struct{} // closed with the last step
	query  string        // of the last request
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.keys, s.bodies = append(s.keys, r.Header.Get("Idempotency-Key")), append(s.bodies, string(body))
	s.paths = append(s.paths, r.URL.String())
	s.query = r.URL.RawQuery
	if len(s.steps) == 0 {
		s.t.Errorf("one request more than expected: %s %s", r.Method, r.URL)
		return
	}
	step := s.steps[0]
	if s.steps = s.steps[1:]; len(s.steps) == 0 {
		close(s.done)
	}
	step(w)
}

// wait returns when the last answer is asked for.
func (s *script) wait(t *testing.T) {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the script did not end within 20 s")
	}
}

func answer(status int, kind string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "urn:countmill:problem:" + kind, "status": status, "detail": kind, "accepted": 1, "counter": "a", "as_of": time.Now()})
	}
}

func cut(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func scripted(t *testing.T, steps ...func(http.ResponseWriter)) (*client.Client, *script) {
	t.Helper()
	s := &script{t: t, steps: steps, done: make(chan struct{})}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.base = server.URL
	return open(t, server.URL, client.WithTimeout(20*time.Second), client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})), s
}

// Calls without an id are not repeated after an unknown outcome, and reads change nothing.
func TestWhatIsNotRepeated(t *testing.T) {
	t.Parallel()
	c, _ := scripted(t, cut)
	if _, err := c.Delete(t.Context(), "a"); !errors.Is(err, countmill.ErrOutcomeUnknown) {
		t.Errorf("a delete that was cut: got %v, want ErrOutcomeUnknown", err)
	}
	c, _ = scripted(t, foreign(503))
	if _, err := c.Delete(t.Context(), "a"); !errors.Is(err, countmill.ErrOutcomeUnknown) {
		t.Errorf("a delete that a proxy answers: got %v, want ErrOutcomeUnknown", err)
	}
	_, s := scripted(t, foreign(200), foreign(200), foreign(200))
	c = open(t, s.base, client.WithTries(1))
	_, deleted := c.Delete(t.Context(), "a")
	_, reset := c.Reset(t.Context(), "a", "")
	for call, err := range map[string]error{"Grow": c.Grow(t.Context(), "a", 2), "Delete": deleted, "Reset": reset} {
		if !errors.Is(err, countmill.ErrOutcomeUnknown) {
			t.Errorf("%s, and another program answers 200: got %v, want ErrOutcomeUnknown", call, err)
		}
	}
	_, s = scripted(t, answer(500, "internal"))
	c = open(t, s.base, client.WithTries(1))
	if _, err := c.Total(t.Context(), "a"); !errors.Is(err, countmill.ErrUnavailable) || errors.Is(err, countmill.ErrOutcomeUnknown) {
		t.Errorf("a read: got %v, want ErrUnavailable", err)
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	c := open(t, "http://127.0.0.1:1", client.WithTimeout(300*time.Millisecond))
	if err := c.Increment(t.Context(), countmill.Increment{Counter: "a", Delta: 1}); !errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable: nothing was sent", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serve(t).Increment(ctx, countmill.Increment{Counter: "a", Delta: 1}); !errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("a context that has ended: got %v, want ErrUnavailable", err)
	}
}

func TestAddressesAndTokens(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "127.0.0.1:8080", "ftp://a", "http://a?b", "http://u:p@a", "http://"} {
		if _, err := client.New(base); err == nil {
			t.Errorf("%q was taken", base)
		}
	}
	if _, err := client.New("http://example.com", client.WithToken("t")); err == nil || !strings.Contains(err.Error(), "plain http") {
		t.Errorf("a token over plain http: got %v", err)
	}
	open(t, "http://example.com", client.WithToken("t"), client.WithInsecure())
	tokens := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("Authorization") + " " + r.URL.Path
		fmt.Fprint(w, `{"status":"ready"}`)
	}))
	defer server.Close()
	for _, option := range []client.Option{
		client.WithTokenSource(func(context.Context) (string, error) { return "secret", nil }), client.WithToken("secret\r\n"), // of a file
	} {
		c := open(t, server.URL+"/below/", option)
		if err := c.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		if got := <-tokens; got != "Bearer secret /below/readyz" {
			t.Errorf("got %q", got)
		}
	}
}

// says is an answer of 200.
func says(text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) }
}

// changes is an event with these totals.
func changes(w http.ResponseWriter, totals map[string]int, rest string) {
	var list []any
	for _, name := range slices.Sorted(maps.Keys(totals)) {
		list = append(list, map[string]any{"counter": name, "total": totals[name]})
	}
	text, _ := json.Marshal(list)
	fmt.Fprintf(w, "event: totals\ndata: {\"totals\":%s,\"lag\":null%s}\n\n", text, rest)
}

// A slow caller gets the newest total of each counter that has changed, and no counter is lost. After
// a break the first event has all totals, and the caller gets the difference.
func TestWatchMergesChanges(t *testing.T) {
	t.Parallel()
	c, s := scripted(t, func(w http.ResponseWriter) {
		changes(w, map[string]int{"a": 1, "b": 1, "c": 1}, "")
		changes(w, map[string]int{"a": 2}, "")
		changes(w, map[string]int{"b": 5}, `,"removed":["c"],"truncated":true`)
		changes(w, map[string]int{"c": 7}, "")
	}, func(w http.ResponseWriter) {
		changes(w, map[string]int{"a": 3, "b": 5, "d": 1}, "")
	}, answer(403, "forbidden"))
	all, updates := make(map[string]int64), 0
	for u, err := range c.WatchPrefix(t.Context(), "", client.WithLimit(3), client.WithRates()) {
		if err != nil {
			continue // it ends after the last one
		}
		if updates++; updates == 1 {
			s.wait(t)
		}
		for _, total := range u.Totals {
			all[total.Counter] = total.Total
		}
		for _, name := range u.Removed {
			delete(all, name)
		}
	}
	if want := map[string]int64{"a": 3, "b": 5, "d": 1}; !maps.Equal(all, want) || updates > 3 {
		t.Errorf("got %v in %d updates, want %v in at most 3", all, updates, want)
	}
	if want := "/v1/watch?limit=3&prefix=&rates=true"; s.paths[0] != want {
		t.Errorf("asked for %s, want %s", s.paths[0], want)
	}
}

// A connection that brings nothing new yields no update.
func TestWatchSaysNothingTwice(t *testing.T) {
	t.Parallel()
	same := func(w http.ResponseWriter) { changes(w, map[string]int{"a": 5}, "") }
	c, _ := scripted(t, same, same, func(w http.ResponseWriter) {
		same(w)
		changes(w, map[string]int{"a": 6}, "")
	}, answer(403, "forbidden"))
	var seen []int64
	for u, err := range c.Watch(t.Context(), []string{"a"}) {
		if err == nil {
			seen = append(seen, u.Totals[0].Total)
		}
	}
	if len(seen) == 0 || len(seen) > 2 || seen[len(seen)-1] != 6 {
		t.Errorf("saw %v, want 5 once at most, and then 6", seen)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A watch goes on after a server that breaks off, and says so.
func TestWatchConnectsAgain(t *testing.T) {
	t.Parallel()
	stream := func(n int) func(http.ResponseWriter) {
		return says(fmt.Sprintf(": hello\n\nevent: totals\ndata: {\"totals\":[{\"counter\":\"a\",\"total\":%d}],\"lag\":null}\n\n", n))
	}
	c, s := scripted(t, stream(1), cut, stream(2), answer(403, "forbidden"))
	var seen []int64
	errs, denied := 0, false
	for u, err := range c.Watch(t.Context(), []string{"a"}) {
		if err != nil {
			errs++
			denied = errors.Is(err, client.ErrDenied) // the last, which ends it
			continue
		}
		seen = append(seen, u.Totals[0].Total)
	}
	// The newest update replaces an update that the loop has not taken yet, so some may be missing.
	if errs == 0 || len(seen) > 2 || !denied || len(s.steps) > 0 {
		t.Errorf("saw %v, %d errors, the last one denied: %t, %d answers not asked for", seen, errs, denied, len(s.steps))
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Another program may ask for any pause.
func TestWatchPausesAMinuteAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		statuses := []int{http.StatusServiceUnavailable, http.StatusForbidden}
		c := open(t, "http://127.0.0.1:1", client.WithHTTPClient(&http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			status := statuses[0]
			statuses = statuses[1:]
			return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"86400"}}, Body: http.NoBody}, nil
		})}))
		begin := time.Now()
		for _, err := range c.Watch(t.Context(), []string{"a"}) {
			if e, ok := errors.AsType[*client.Error](err); !ok || e.RetryAfter != 24*time.Hour {
				t.Errorf("got %v, want what the program asked for", err)
			}
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("the pause was %s, want a minute", took)
		}
	})
}

func TestReadsAfterAReceipt(t *testing.T) {
	t.Parallel()
	found := func(aside string) func(http.ResponseWriter) {
		return says(`{"totals":[{"counter":"a","total":3,"as_of":"2026-11-21T04:04:03.120000Z","source":"store","exists":true}],"lag":null,"dead_letters":[` + aside + `]}`)
	}
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter)
		want   error
	}{
		"counted":          {found(""), nil},
		"set aside":        {found(`{"key":"l-1","discarded":true}`), client.ErrDeadLettered},
		"not counted yet":  {answer(409, "not-counted-yet"), countmill.ErrNotCountedYet},
		"another count":    {answer(409, "other-count"), countmill.ErrConflict},
		"id expired":       {answer(410, "id-expired"), countmill.ErrIDExpired},
		"exhausted":        {answer(409, "exhausted"), countmill.ErrExhausted},
		"expired":          {answer(410, "receipt-expired"), countmill.ErrReceiptExpired},
		"another database": {answer(410, "other-database"), countmill.ErrOtherDatabase},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s := scripted(t, tc.answer)
			got, err := c.Total(t.Context(), "a", client.WithAfter("r-1", 2*time.Second), client.WithMinAsOf(time.Date(2026, 11, 21, 4, 4, 3, 5e8, time.UTC)))
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if want := map[bool]int64{true: 3}[tc.want == nil || tc.want == client.ErrDeadLettered]; got.Total != want {
				t.Errorf("got total %d beside %v, want %d", got.Total, err, want)
			}
			aside, ok := errors.AsType[*client.DeadLetteredError](err)
			if ok != (tc.want == client.ErrDeadLettered) || ok && (len(aside.DeadLetters) != 1 || aside.DeadLetters[0] != (client.DeadLetterRef{Key: "l-1", Discarded: true})) {
				t.Errorf("got the letters %v", aside)
			}
			if want := "after=r-1&min_as_of=2026-11-21T04%3A04%3A03.5Z&wait=2s"; s.query != want {
				t.Errorf("the server got %q, want %q", s.query, want)
			}
		})
	}
}

func TestJournalRulesAndSeries(t *testing.T) {
	t.Parallel()
	c, ctx := serve(t), t.Context()
	rules, err := c.AddRule(ctx, client.KindJournal, "j*", "400d,paged")
	if err != nil || len(rules.Journal) != 1 || rules.Journal[0].Keep != "400d,paged" {
		t.Fatalf("AddRule of the journal: got %+v, %v", rules, err)
	}
	page, err := c.Journal(ctx, client.JournalQuery{Counter: "ja", Limit: 10})
	if err != nil || page.Entries == nil || page.SettledUntil.IsZero() {
		t.Errorf("Journal: got %+v, %v", page, err)
	}
	if _, err := c.Journal(ctx, client.JournalQuery{Counter: "ja", After: "x"}); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("a key that is none: got %v", err)
	}
	if rules, err = c.RemoveRule(ctx, client.KindJournal, "j*"); err != nil || rules.Journal[0].Ended == nil {
		t.Errorf("RemoveRule of the journal: got %+v, %v", rules, err)
	}
	rules, err = c.AddRule(ctx, client.KindSeries, "a*", "1m:6h,15m:400d")
	if err != nil || len(rules.Series) != 1 || rules.Series[0].Ended != nil || rules.Series[0].Begin.IsZero() {
		t.Fatalf("AddRule: got %+v, %v", rules, err)
	}
	if again, err := c.Rules(ctx); err != nil || again.Version != rules.Version {
		t.Errorf("Rules: got %+v, %v", again, err)
	}
	rows, err := c.Series(ctx, client.SeriesQuery{Counters: []string{"a", "ab"}, Step: "1d", Zone: "Asia/Kathmandu"})
	if err != nil || len(rows) < 2 || rows[0].Counter != "a" || rows[len(rows)-1].Counter != "ab" || !rows[len(rows)-1].Partial {
		t.Errorf("Series: got %+v, %v", rows, err)
	}
	if _, err := c.Series(ctx, client.SeriesQuery{Counters: []string{"x"}}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a counter without a rule: got %v", err)
	}
	from, to := time.Now().Add(-48*time.Hour).Truncate(time.Second), time.Now().Add(-24*time.Hour).Truncate(time.Second)
	if rules, err = c.FillSeries(ctx, "a*", from, to); err != nil || !rules.Series[0].FilledFrom.Equal(from) || !rules.Series[0].FilledTo.Equal(to) {
		t.Errorf("FillSeries: got %+v, %v", rules, err)
	}
	if _, err := c.FillSeries(ctx, "x", from, to); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("FillSeries of a rule that does not exist: got %v", err)
	}
	if rules, err = c.RemoveRule(ctx, client.KindSeries, "a*"); err != nil || rules.Series[0].Ended == nil {
		t.Errorf("RemoveRule: got %+v, %v", rules, err)
	}
	if _, err := c.RemoveRule(ctx, client.KindSeries, "x"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a rule that does not exist: got %v", err)
	}
}
