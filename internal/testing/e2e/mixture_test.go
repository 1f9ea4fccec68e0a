package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
)

const (
	mixedPages   = 100_000 // counters that expensive reads are about
	mixedCurves  = 100     // of them with many rows
	mixedReaders = 50      // of one token
	mixedBodies  = 8       // of one token
	mixedIDs     = 100_000 // of a body
	mixedOthers  = 40      // callers of small requests
	mixedTokens  = 8       // of those callers
)

// Small requests of 40 callers are answered while one token sends 50 expensive reads and another one 8 bodies of
// 100,000 ids, all at once and again and again. Every accepted increment is in the totals, and no request is counted twice.
//
// COUNTMILL_TEST_MIXTURE is how long it runs; without it the test is skipped. With COUNTMILL_TEST_MIXTURE_WITHIN, for an
// otherwise idle machine, no small request may fail or take longer.
func TestMixture(t *testing.T) {
	length, within := durationOf(t, "COUNTMILL_TEST_MIXTURE"), durationOf(t, "COUNTMILL_TEST_MIXTURE_WITHIN")
	if length == 0 {
		t.Skip("keeps the machine busy: set COUNTMILL_TEST_MIXTURE, or run make mixture")
	}
	m := newMixture(t)
	alone := m.small(t, length/3)
	reads, bodies := new(answers), new(answers)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for n := range mixedReaders {
		all.Go(func() { m.readOn(ctx, n, reads) })
	}
	for n := range mixedBodies {
		all.Go(func() { m.sendOn(ctx, n, bodies) })
	}
	beside := m.small(t, length)
	stop()
	all.Wait()
	t.Logf("\n%s", rows([][2]string{
		{"small requests alone", alone.String()},
		{"small requests beside the others", beside.String()},
		{"expensive reads", reads.String()},
		{"bodies of 100,000 ids", bodies.String()},
		{"load of the machine", loadOf()},
	}))
	m.exact(t)
	if within > 0 {
		beside.check(t, within)
	}
}

// loadOf is what the system says of its load.
func loadOf() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// durationOf is the duration in a variable, 0 if it is not set.
func durationOf(t *testing.T, variable string) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		t.Fatalf("%s must be a duration of at least 1s, got %q", variable, text)
	}
	return d
}

// A mixture is a countmill with counters, an index and curves, and its callers.
type mixture struct {
	up       *process
	client   *http.Client
	reader   string // token
	sender   string // token
	others   []string
	sent     [mixedOthers]atomic.Int64 // accepted increments of each small caller
	doubtful [mixedOthers]atomic.Int64 // increments that were maybe counted
	accepted [mixedBodies]atomic.Int64 // bodies of each sender
	unknown  [mixedBodies]atomic.Int64 // bodies that were maybe counted
	dice     atomic.Int64              // makes ids and queries differ
}

func newMixture(t *testing.T) *mixture {
	t.Helper()
	tokens := []auth.Token{
		{Name: "admin", Scopes: auth.Scopes()},
		{Name: "expensive", Scopes: []auth.Scope{auth.Read}},
		{Name: "bulk", Scopes: []auth.Scope{auth.Publish}},
	}
	for n := range mixedTokens {
		tokens = append(tokens, auth.Token{Name: fmt.Sprintf("small-%d", n), Scopes: []auth.Scope{auth.Read, auth.Publish}})
	}
	file, secrets := authtest.File(t, tokens...)
	up := start(t, []string{"GOMEMLIMIT=", "GOGC="}, "up", "--tokens", file, "--data", t.TempDir()).ready(t)
	m := &mixture{
		up: up, reader: secrets[1], sender: secrets[2], others: secrets[3:],
		client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: mixedReaders + mixedBodies + mixedOthers}},
	}
	t.Cleanup(m.client.CloseIdleConnections)
	m.fill(t, secrets[0])
	return m
}

// fill makes the counters, their index and the curves.
func (m *mixture) fill(t *testing.T, admin string) {
	t.Helper()
	want := func(status int, method, path, body string) {
		t.Helper()
		if got, _ := m.do(t.Context(), admin, method, path, body); got != status {
			t.Fatalf("%s %s was answered with %d, want %d", method, path, got, status)
		}
	}
	want(http.StatusOK, http.MethodPost, "/v1/rules/series", `{"pattern":"page:*","keep":"1m:6h,15m:400d"}`)
	want(http.StatusOK, http.MethodPost, "/v1/indexes", `{"name":"sites","match":"page:{site}:*","group":"site:{site}"}`)
	const keyRange = 10_000
	for first := 0; first < mixedPages; first += keyRange {
		var body strings.Builder
		for n := first; n < first+keyRange; n++ {
			fmt.Fprintf(&body, "{\"counter\":%q,\"delta\":%d}\n", page(n), n%97+1)
		}
		want(http.StatusAccepted, http.MethodPost, "/v1/increments", body.String())
	}
	var body strings.Builder
	for n := range mixedCurves {
		fmt.Fprintf(&body, "{\"counter\":%q}\n", page(n))
	}
	for at := time.Now().Add(-5 * 24 * time.Hour); time.Until(at) < 0; at = at.Add(15 * time.Minute) {
		want(http.StatusAccepted, http.MethodPost, "/v1/increments?at="+at.UTC().Format(time.RFC3339), body.String())
	}
}

func page(n int) string { return fmt.Sprintf("page:%d:a-path-of-some-length/%d", n%1000, n) }

// do makes a request. The status is 0 if there was no answer.
func (m *mixture) do(ctx context.Context, token, method, path, body string) (status int, answer []byte) {
	request, err := http.NewRequestWithContext(ctx, method, m.up.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(body, "\n") {
		request.Header.Set("Content-Type", "application/x-ndjson")
	}
	response, err := m.client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(io.LimitReader(response.Body, 64<<10)); err != nil {
		return 0, nil
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, answer
}

// An answers has what a group of callers got.
type answers struct {
	mu       sync.Mutex
	statuses map[int]int
	took     []time.Duration
	failed   []string
	kinds    map[string][]time.Duration
}

func (a *answers) note(kind string, status int, took time.Duration, text []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.statuses == nil {
		a.statuses, a.kinds = make(map[int]int), make(map[string][]time.Duration)
	}
	a.statuses[status]++
	a.took = append(a.took, took)
	if status/100 == 2 {
		a.kinds[kind] = append(a.kinds[kind], took)
		return
	}
	if len(a.failed) < 5 {
		a.failed = append(a.failed, fmt.Sprintf("%s: %d %s", kind, status, text))
	}
}

func (a *answers) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := fmt.Sprintf("answers %v, ms: median %.0f, 99 %% %.0f, most %.0f;", a.statuses, ms(quantile(a.took, 0.5)), ms(quantile(a.took, 0.99)), ms(quantile(a.took, 1)))
	for kind, took := range a.kinds {
		text += fmt.Sprintf(" %s %d: %.0f, %.0f;", kind, len(took), ms(quantile(took, 0.5)), ms(quantile(took, 1)))
	}
	return text
}

// small runs the callers of small requests for a time.
func (m *mixture) small(t *testing.T, length time.Duration) *answers {
	a := new(answers)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	for caller := range mixedOthers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				m.one(t, caller, n, a)
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	all.Wait()
	return a
}

// one makes a small request of each kind in turn.
func (m *mixture) one(t *testing.T, caller, n int, a *answers) {
	counter := fmt.Sprintf("small:%d", caller)
	kind, method, path, body := "total", http.MethodGet, "/v1/totals?max_staleness=0s&counter="+counter, ""
	switch (caller + n) % 4 {
	case 0:
		kind, method, path, body = "increment", http.MethodPost, "/v1/increments", `{"counter":"`+counter+`"}`
	case 1:
		kind, method, path, body = "id", http.MethodPost, "/v1/increments", fmt.Sprintf(`{"counter":%q,"id":"%d"}`, counter, m.dice.Add(1))
	case 2:
		kind, path = "list", "/v1/counters?limit=10&prefix=page:"+fmt.Sprint(n%1000)
	}
	began := time.Now()
	status, answer := m.do(t.Context(), m.others[caller%mixedTokens], method, path, body)
	a.note(kind, status, time.Since(began), answer)
	if method == http.MethodPost {
		settle(status, &m.sent[caller], &m.doubtful[caller])
	}
}

// readOn makes expensive reads until ctx ends.
func (m *mixture) readOn(ctx context.Context, caller int, a *answers) {
	var names []string
	curves := make(url.Values)
	for n := range 1000 {
		names = append(names, page(n*97%mixedPages))
	}
	for n := range mixedCurves {
		curves.Add("counter", page(n))
	}
	list, _ := json.Marshal(map[string]any{"counters": names})
	for n := 0; ctx.Err() == nil; n++ {
		kind, method, path, body := "totals", http.MethodPost, "/v1/totals?max_staleness=0s", string(list)
		switch (caller + n) % 5 {
		case 1:
			kind, method, path, body = "list", http.MethodGet, "/v1/counters?limit=1000&prefix=page:", ""
		case 2:
			kind, method, path, body = "metrics", http.MethodGet, "/metrics/counters?limit=10000&match=*", ""
		case 3:
			kind, method, path, body = "series", http.MethodGet, "/v1/series?step=1d&from="+time.Now().Add(-90*24*time.Hour).UTC().Format(time.DateOnly)+"&"+curves.Encode(), ""
		case 4:
			kind, method, path, body = "top", http.MethodGet, "/v1/top?index=sites&n=100&window="+[]string{"", "1h", "today", "this-week&tz=Asia/Kolkata", "this-month", "today&tz=America/New_York"}[m.dice.Add(1)%6], ""
		}
		began := time.Now()
		status, answer := m.do(ctx, m.reader, method, path, body)
		if ctx.Err() == nil {
			a.note(kind, status, time.Since(began), answer)
		}
		if status != http.StatusOK {
			<-time.After(100 * time.Millisecond)
		}
	}
}

// sendOn sends bodies until ctx ends. Each one has new ids.
func (m *mixture) sendOn(ctx context.Context, sender int, a *answers) {
	const digits = "0000000000"
	body := bytes.Repeat(fmt.Appendf(nil, "{\"counter\":\"bulk:%d\",\"id\":\"%s%s\"}\n", sender, digits, digits), mixedIDs)
	each := len(body) / mixedIDs
	at := bytes.Index(body, []byte(digits+digits))
	for ctx.Err() == nil {
		for n := range mixedIDs {
			copy(body[n*each+at:], fmt.Sprintf("%010d%010d", m.dice.Load(), n))
		}
		m.dice.Add(1)
		began := time.Now()
		status, answer := m.do(context.WithoutCancel(ctx), m.sender, http.MethodPost, "/v1/increments", string(body))
		a.note("body", status, time.Since(began), answer)
		if settle(status, &m.accepted[sender], &m.unknown[sender]); status != http.StatusAccepted {
			<-time.After(100 * time.Millisecond)
		}
	}
}

// settle counts the outcome of increments.
func settle(status int, counted, maybe *atomic.Int64) {
	switch status {
	case http.StatusAccepted:
		counted.Add(1)
	case 0, http.StatusInternalServerError, http.StatusGatewayTimeout:
		maybe.Add(1)
	}
}

// exact checks the totals: all that was accepted counts once, and bodies with an unknown outcome at most once.
func (m *mixture) exact(t *testing.T) {
	t.Helper()
	for caller := range mixedOthers {
		want := m.sent[caller].Load()
		m.within(t, fmt.Sprintf("small:%d", caller), want, want+m.doubtful[caller].Load())
	}
	for sender := range mixedBodies {
		want := m.accepted[sender].Load() * mixedIDs
		m.within(t, fmt.Sprintf("bulk:%d", sender), want, want+m.unknown[sender].Load()*mixedIDs)
	}
}

// within waits until a total is right: an increment with an unknown outcome may still be on its way.
func (m *mixture) within(t *testing.T, counter string, least, most int64) {
	t.Helper()
	until(t, time.Minute, "a total of "+counter, func() bool {
		status, answer := m.do(t.Context(), m.others[0], http.MethodGet, "/v1/totals?max_staleness=0s&counter="+counter, "")
		var got struct{ Totals []struct{ Total int64 } }
		if status != http.StatusOK || json.Unmarshal(answer, &got) != nil || len(got.Totals) != 1 || got.Totals[0].Total < least {
			return false
		}
		if got.Totals[0].Total > most {
			t.Fatalf("%s has %d, want %d to %d", counter, got.Totals[0].Total, least, most)
		}
		return true
	})
}

func (a *answers) check(t *testing.T, within time.Duration) {
	t.Helper()
	if len(a.failed) > 0 {
		t.Errorf("small requests failed, the first ones with %s", a.failed)
	}
	if most := quantile(a.took, 1); most > within {
		t.Errorf("a small request took %s, want at most %s", most, within)
	}
}
