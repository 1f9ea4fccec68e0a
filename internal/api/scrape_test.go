package api_test

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/reader"
)

// parseMetrics is what Prometheus makes of a text: the counters, and the other samples.
func parseMetrics(t *testing.T, text string) (counters map[string]float64, others map[string]float64) {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	counters, others = make(map[string]float64), make(map[string]float64)
	for name, family := range families {
		if family.GetType() != dto.MetricType_GAUGE || family.GetHelp() == "" {
			t.Errorf("%s is a %s with help %q, want a gauge with help", name, family.GetType(), family.GetHelp())
		}
		for _, m := range family.Metric {
			switch {
			case name != "countmill_value":
				others[name] = m.GetGauge().GetValue()
			case len(m.Label) != 1 || m.Label[0].GetName() != "counter":
				t.Errorf("labels are %v", m.Label)
			default:
				counters[m.Label[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	return counters, others
}

func TestMetricsOfCounters(t *testing.T) {
	t.Parallel()
	n := &nameReader{fakeReader: newFakeOf(map[string]int64{"big": math.MaxInt64, "neg": math.MinInt64, "page:/": 5})}
	n.names = []string{`a"b`, `a\`, `a\n`, "a{counter=\"x\"} 1", "big", "neg", "page:/", "page:/é #", "日本"}
	srv, _ := start(t, n, api.Config{})
	status, text, header := call(t, "GET", srv.URL+"/metrics/counters?match=*&match=none", "")
	if status != 200 || header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" || header.Get("Countmill-Truncated") != "false" || header.Get("Cache-Control") != "no-store" {
		t.Fatalf("got %d, %v", status, header)
	}
	counters, others := parseMetrics(t, text+"\n")
	want := map[string]float64{"big": math.MaxInt64, "neg": math.MinInt64, "page:/": 5, "none": 0}
	for _, name := range n.names {
		if _, ok := want[name]; !ok {
			want[name] = 1
		}
	}
	if diff := cmp.Diff(want, counters); diff != "" {
		t.Errorf("counters differ (-want +got):\n%s", diff)
	}
	wantOthers := map[string]float64{
		"countmill_counters_as_of_timestamp_seconds": float64(asOf.UnixMicro()) / 1e6, "countmill_counters_lag_seconds": 0.1205,
		"countmill_counters_truncated": 0, "countmill_counters_overflowed": 0,
	}
	if diff := cmp.Diff(wantOthers, others); diff != "" {
		t.Errorf("the rest differs (-want +got):\n%s", diff)
	}
	for _, line := range []string{`countmill_value{counter="big"} 9223372036854775807`, `countmill_value{counter="neg"} -9223372036854775808`, `{counter="a\\n"} 1`, `{counter="a\"b"} 1`} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	lint(t, text+"\n")
}

// lint runs Prometheus's own checks.
func lint(t *testing.T, text string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		return // promtool uses promlint, which has checked the text
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

func newFakeOf(counters map[string]int64) *fakeReader {
	f := newFake()
	f.counters = counters
	return f
}

// Even if matches overlap, each counter is there once. The answer says if there are more than
// the limit.
func TestMetricsLimit(t *testing.T) {
	t.Parallel()
	n := &nameReader{fakeReader: newFakeOf(map[string]int64{})}
	for i := range 2500 {
		n.names = append(n.names, fmt.Sprintf("c:%05d", i))
	}
	n.names = append(n.names, "d:1", "d:2")
	srv, _ := start(t, n, api.Config{})
	for _, tc := range []struct {
		query     string
		count     int
		truncated bool
	}{
		{"match=*", 1000, true},
		{"match=*&limit=2501", 2501, true},
		{"match=*&limit=2502", 2502, false},
		{"match=*&limit=10000", 2502, false},
		{"match=d:*&limit=2", 2, false},
		{"match=d:*&limit=1", 1, true},
		{"match=d:*&match=d:1&match=d:*&match=d:1&limit=2", 2, false},
		{"match=d:*&match=*&limit=2502", 2502, false},
		{"match=d:*&match=x&limit=2", 2, true},
		{"match=x&match=y&limit=1", 1, true},
		{"match=none*", 0, false},
	} {
		_, text, header := call(t, "GET", srv.URL+"/metrics/counters?"+tc.query, "")
		counters, others := parseMetrics(t, text+"\n")
		samples := strings.Count(text, "\ncountmill_value{")
		said := strings.HasPrefix(text, "# truncated: more counters match than ")
		if samples != tc.count || len(counters) != tc.count || said != tc.truncated || (others["countmill_counters_truncated"] == 1) != tc.truncated || header.Get("Countmill-Truncated") != fmt.Sprint(tc.truncated) {
			t.Errorf("%s: got %d samples of %d counters, comment %t, sample %v, header %s; want %d, truncated %t", tc.query, samples, len(counters),
				said, others["countmill_counters_truncated"], header.Get("Countmill-Truncated"), tc.count, tc.truncated)
		}
	}
}

// A counter without a total is left out and counted; the others are there.
func TestMetricsOfOverflowedCounters(t *testing.T) {
	t.Parallel()
	n := &overflowing{nameReader{fakeReader: newFakeOf(map[string]int64{"a": 7}), names: []string{"p:1", "p:2"}, overflow: map[string]bool{"p:2": true, "o": true}}}
	srv, _ := start(t, n, api.Config{})
	_, text, _ := call(t, "GET", srv.URL+"/metrics/counters?match=a&match=o&match=p:2&match=p:*", "")
	counters, others := parseMetrics(t, text+"\n")
	if diff := cmp.Diff(map[string]float64{"a": 7, "p:1": 1}, counters); diff != "" || others["countmill_counters_overflowed"] != 2 {
		t.Errorf("overflowed %v; counters differ:\n%s", others["countmill_counters_overflowed"], diff)
	}
	if _, text, _ = call(t, "GET", srv.URL+"/metrics/counters?match=o", ""); strings.Contains(text, "countmill_value") || strings.Contains(text, "as_of") {
		t.Errorf("without any total: got\n%s", text)
	}
	lint(t, text+"\n")
}

// A group without a total does not keep the others from being read, and does not count as an overflow.
func TestMetricsOfGroupsThatDoNotServe(t *testing.T) {
	t.Parallel()
	n := &overflowing{nameReader{fakeReader: newFakeOf(map[string]int64{"a": 7, "=site:b": 9}), building: map[string]bool{"=site:a": true}}}
	srv, _ := start(t, n, api.Config{})
	_, text, _ := call(t, "GET", srv.URL+"/metrics/counters?match=a&match=%3Dsite:a&match=%3Dsite:b", "")
	counters, others := parseMetrics(t, text+"\n")
	if diff := cmp.Diff(map[string]float64{"a": 7, "=site:b": 9}, counters); diff != "" || others["countmill_counters_overflowed"] != 0 {
		t.Errorf("overflowed %v; counters differ:\n%s", others["countmill_counters_overflowed"], diff)
	}
}

func TestMetricsRefusals(t *testing.T) {
	t.Parallel()
	n := &nameReader{fakeReader: newFake(), names: []string{"page:a", "shop:a"}}
	srv, h := start(t, n, api.Config{})
	for path, want := range map[string]string{
		"?match=%20a":              "match begins or ends with a space",
		"?match=a&max_staleness=x": "max_staleness is not a duration",
		"?match=%FF*":              "match is no prefix",
		"?match=" + strings.Repeat("a", 501) + "*": "match is no prefix",
		"?" + strings.Repeat("&match=a", 101)[1:]:  `"limit":"1 to 100"`,
	} {
		if status, got, _ := call(t, "GET", srv.URL+"/metrics/counters"+path, ""); status != 400 || !strings.Contains(got, want) {
			t.Errorf("%.60s: got %d %s, want 400 with %s", path, status, got, want)
		}
	}
	limited := authtest.As(t, h, "x", "page:")
	n.fail(countmill.ErrUnavailable)
	if status, got, _ := call(t, "GET", srv.URL+"/metrics/counters?match=page:a", ""); status != 503 || !strings.Contains(got, ":unavailable") {
		t.Errorf("without the store: got %d %s, want 503", status, got)
	}
	n.fail(nil)
	for match, want := range map[string]int{"shop:a": 403, "shop:*": 403, "page:a": 200, "page:*": 200, "*": 200, "p*": 200} {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("GET", "/metrics/counters?match="+url.QueryEscape(match), nil))
		if w.Code != want || strings.Contains(w.Body.String(), `"shop:a"} `) || want == 200 && !strings.Contains(w.Body.String(), `{counter="page:a"} `) ||
			want == 403 && !strings.Contains(w.Body.String(), `"field":"match","limit":"page:*"`) {
			t.Errorf("%s as page:*'s: got %d %s, want %d", match, w.Code, w.Body, want)
		}
	}
}

// A * elsewhere than at the end is part of the name.
func TestMetricsAskTheReader(t *testing.T) {
	t.Parallel()
	n := &nameReader{fakeReader: newFake()}
	srv, _ := start(t, n, api.Config{})
	for param, want := range map[string]time.Duration{"": -1, "&max_staleness=15s": 15 * time.Second, "&max_staleness=0": 0} {
		call(t, "GET", srv.URL+"/metrics/counters?match=b&match=a*c&match=b"+param, "")
		if n.maxStaleness != want || !slices.Equal(n.asked, []string{"a*c", "b"}) {
			t.Errorf("%q: the reader was asked for %q at %s, want %s", param, n.asked, n.maxStaleness, want)
		}
	}
}

// overflowing answers as a real reader does about counters without a total.
type overflowing struct{ nameReader }

func (o *overflowing) TotalsSince(ctx context.Context, counters []string, maxStaleness time.Duration, minAsOf time.Time) ([]reader.Total, error) {
	for _, name := range counters {
		if o.building[name] {
			return nil, fmt.Errorf("reading: %w", &reader.NotServingError{Group: name})
		}
	}
	ts, err := o.fakeReader.TotalsSince(ctx, counters, maxStaleness, minAsOf)
	for i := range ts {
		if o.overflow[ts[i].Counter] {
			ts[i].Total, ts[i].Overflow, err = 0, true, &reader.OverflowError{Counter: ts[i].Counter}
		}
	}
	return ts, err
}
