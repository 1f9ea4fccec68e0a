package app

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// A rule holds from the next increment on, in the total and in the rows, also in the next process.
func TestSeries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir)
	r.waitReady(t) // the aggregator has read the settings, and would not read them for 10 s
	r.addRule(t, "series", "page:*", "1m:6h,15m:400d")
	yesterday := time.Now().Add(-24 * time.Hour).UTC()
	r.incr(t, `[{"counter":"page:a","delta":5},{"counter":"page:a","delta":-2,"time":"`+yesterday.Format(time.RFC3339)+`"},{"counter":"b"}]`)
	// Of the past: beyond the deduplication window, and once for its key.
	past := time.Now().Add(-300 * 24 * time.Hour).UTC()
	for range 2 {
		status, text := r.call(t, "POST", "/v1/increments?at="+past.Format(time.RFC3339), `[{"counter":"page:a","delta":70},{"counter":"page:old","delta":9}]`, "Content-Type", "application/json", "Idempotency-Key", "history")
		if status != 202 {
			t.Fatalf("the past: got %d %s", status, text)
		}
	}
	r.stop(t)
	r = start(t, dir)
	sum := func(from time.Time) (sum int64) {
		t.Helper()
		status, text := r.call(t, "GET", "/v1/series?counter=page:a&step=1d&from="+from.Format(time.RFC3339), "")
		var rows []struct{ Value int64 }
		if err := json.Unmarshal([]byte(text), &rows); status != 200 || err != nil {
			t.Fatalf("got %d %s (%v)", status, text, err)
		}
		for _, row := range rows {
			sum += row.Value
		}
		return sum
	}
	if got := sum(yesterday.Add(-time.Hour)); got != 3 {
		t.Errorf("the rows of two days sum to %d, want 3", got)
	}
	if got := sum(past.Add(-time.Hour)); got != 73 {
		t.Errorf("the rows of 300 days sum to %d, want 73", got)
	}
	day := past.Truncate(24 * time.Hour)
	if _, text := r.call(t, "GET", "/v1/series?counter=page:old&step=1d&from="+day.Format(time.RFC3339)+"&to="+day.Add(48*time.Hour).Format(time.RFC3339), ""); strings.Count(text, `"value":9,`) != 1 || strings.Count(text, `"value":0,`) != 1 {
		t.Errorf("the day of the past and the next: got %s, want 9 and 0", text)
	}
	if status, text := r.call(t, "GET", "/v1/series?counter=b", ""); status != 404 || !strings.Contains(text, "no-series") {
		t.Errorf("a counter without a rule: got %d %s", status, text)
	}
	if status, text := r.call(t, "POST", "/v1/rules/series", `{"pattern":"b","keep":"15m:30d"}`, "Content-Type", "application/json"); status != 200 || !strings.Contains(text, `"page:*"`) {
		t.Errorf("a second rule: got %d %s", status, text)
	}
	if status, text := r.call(t, "GET", "/v1/series?counter=b", ""); status != 200 {
		t.Errorf("right after its rule: got %d %s", status, text)
	}
	// A reset moves the total and leaves the rows.
	if status, text := r.call(t, "POST", "/v1/reset", `{"counter":"page:a"}`, "Content-Type", "application/json"); status != 200 || !strings.Contains(text, `"removed":73`) {
		t.Errorf("a reset: got %d %s, want 73 removed", status, text)
	}
	if _, text := r.call(t, "GET", "/v1/totals?counter=page:a&max_staleness=0s", ""); !strings.Contains(text, `"total":0,`) {
		t.Errorf("the total after a reset: got %s, want 0", text)
	}
	if got := sum(past.Add(-time.Hour)); got != 73 {
		t.Errorf("after a reset the rows sum to %d, want 73", got)
	}
}

// An increment of the past that its rule does not keep is in the total and in no row, as docs/howto/series.md says.
func TestPastBeyondTheRule(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	if status, text := r.call(t, "POST", "/v1/rules/series", `{"pattern":"a","keep":"15m:400d"}`); status != 200 {
		t.Fatalf("the rule: got %d %s", status, text)
	}
	past := time.Now().UTC().Add(-500 * 24 * time.Hour).Truncate(24 * time.Hour)
	if status, text := r.call(t, "POST", "/v1/increments?at="+past.Format(time.RFC3339), `{"counter":"a","delta":7}`); status != 202 {
		t.Fatalf("got %d %s", status, text)
	}
	r.wantTotal(t, "a", 7)
	res, err := r.client.Get(r.url + "/v1/series?counter=a&step=1mo&from=" + past.Format(time.RFC3339))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if rows := strings.Count(string(text), `"value":0,`); err != nil || res.StatusCode != 200 || rows < 16 || rows != strings.Count(string(text), `"value"`) {
		t.Errorf("got %d %s (%v), want rows of 0", res.StatusCode, text, err)
	}
	if without := res.Header.Get("Countmill-Without-Curve"); without != "0" {
		t.Errorf("%s without a curve, want 0: it had a series", without)
	}
}

// addRule adds a rule for series or for the journal.
func (r *running) addRule(t *testing.T, kind, pattern, keep string, headers ...string) {
	t.Helper()
	body := fmt.Sprintf(`{"pattern":%q,"keep":%q}`, pattern, keep)
	if status, text := r.call(t, "POST", "/v1/rules/"+kind, body, append(headers, "Content-Type", "application/json")...); status != 200 {
		t.Fatalf("the rule for %s: got %d %s", pattern, status, text)
	}
}
