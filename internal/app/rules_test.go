package app

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
)

func TestSeriesFlagWritesTheRule(t *testing.T) {
	t.Parallel()
	testSeriesFlag(t, "pebble:"+escapeDir(t.TempDir()))
}

func TestSeriesFlagOnDatastore(t *testing.T) {
	t.Setenv("DATASTORE_EMULATOR_HOST", emulator.Firestore(t))
	testSeriesFlag(t, "datastore://"+emulator.Project())
}

// testSeriesFlag: a rule of --series holds from the first increment on, in the total and in the rows,
// also in the next process.
func testSeriesFlag(t *testing.T, url string) {
	t.Helper()
	begin := func(series ...string) *running {
		a, err := New(Config{Listen: "127.0.0.1:0", Store: url, Series: series})
		if err != nil {
			t.Fatal(err)
		}
		return run(t, a)
	}
	r := begin("page:*=1m:6h,15m:400d")
	yesterday := time.Now().Add(-24 * time.Hour).UTC()
	r.incr(t, `[{"counter":"page:a","delta":5},{"counter":"page:a","delta":-2,"time":"`+yesterday.Format(time.RFC3339)+`"},{"counter":"b"}]`)
	r.stop(t)
	r = begin()
	defer r.stop(t)
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
	if status, text := r.call(t, "GET", "/v1/series?counter=b", ""); status != 404 || !strings.Contains(text, "no-series") {
		t.Errorf("a counter without a rule: got %d %s", status, text)
	}
	if status, text := r.call(t, "POST", "/v1/rules/series", `{"pattern":"b","keep":"15m:30d"}`, "Content-Type", "application/json"); status != 200 || !strings.Contains(text, `"page:*"`) {
		t.Errorf("a second rule: got %d %s", status, text)
	}
	if status, text := r.call(t, "GET", "/v1/series?counter=b", ""); status != 200 {
		t.Errorf("right after its rule: got %d %s", status, text)
	}
}

func TestSeriesFlagNeedsARetention(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir()), Series: []string{"a"}}); !errors.Is(err, ErrUsage) {
		t.Errorf("a rule without a retention: got %v", err)
	}
}
