package api_test

import (
	"fmt"
	"math"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/countmill/countmill/internal/api"
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
	f := ones(`a"b`, `a\`, `a\n`, "a{counter=\"x\"} 1", "page:/é #", "日本")
	f.counters["big"], f.counters["neg"], f.counters["page:/"] = math.MaxInt64, math.MinInt64, 5
	status, text, header := ask(t, api.Services{Reader: f}, api.Config{}).call(t, "GET", "/metrics/counters?match=*&match=none", "")
	if status != 200 || header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" || header.Get("Countmill-Truncated") != "false" || header.Get("Cache-Control") != "no-store" {
		t.Fatalf("got %d, %v", status, header)
	}
	counters, others := parseMetrics(t, text+"\n")
	want := map[string]float64{"none": 0}
	for name, total := range f.counters {
		want[name] = float64(total)
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

// Even if matches overlap, each counter is there once. The answer says if there are more than
// the limit.
func TestMetricsLimit(t *testing.T) {
	t.Parallel()
	f := ones("d:1", "d:2")
	for i := range 2500 {
		f.counters[fmt.Sprintf("c:%05d", i)] = 1
	}
	s := ask(t, api.Services{Reader: f}, api.Config{})
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
		_, text, header := s.call(t, "GET", "/metrics/counters?"+tc.query, "")
		counters, others := parseMetrics(t, text+"\n")
		samples := strings.Count(text, "\ncountmill_value{")
		said := strings.HasPrefix(text, "# truncated: more counters match than ")
		if samples != tc.count || len(counters) != tc.count || said != tc.truncated || (others["countmill_counters_truncated"] == 1) != tc.truncated || header.Get("Countmill-Truncated") != fmt.Sprint(tc.truncated) {
			t.Errorf("%s: got %d samples of %d counters, comment %t, sample %v, header %s; want %d, truncated %t", tc.query, samples, len(counters),
				said, others["countmill_counters_truncated"], header.Get("Countmill-Truncated"), tc.count, tc.truncated)
		}
	}
}

// A counter without a total is left out and counted; the others are there. A group that does not serve is left out alone.
func TestMetricsOfCountersWithoutTotals(t *testing.T) {
	t.Parallel()
	f := ones("a", "o", "p:1", "p:2", "=site:b")
	f.overflow["p:2"], f.overflow["o"], f.building["=site:a"] = true, true, true
	s := ask(t, api.Services{Reader: f}, api.Config{})
	_, text, _ := s.call(t, "GET", "/metrics/counters?match=a&match=o&match=p:2&match=p:*&match=%3Dsite:a&match=%3Dsite:b", "")
	counters, others := parseMetrics(t, text+"\n")
	if diff := cmp.Diff(map[string]float64{"a": 1, "p:1": 1, "=site:b": 1}, counters); diff != "" || others["countmill_counters_overflowed"] != 2 {
		t.Errorf("overflowed %v; counters differ:\n%s", others["countmill_counters_overflowed"], diff)
	}
	if _, text, _ = s.call(t, "GET", "/metrics/counters?match=o", ""); strings.Contains(text, "countmill_value") || strings.Contains(text, "as_of") {
		t.Errorf("without any total: got\n%s", text)
	}
	lint(t, text+"\n")
}

func TestMetricsOfALimitedToken(t *testing.T) {
	t.Parallel()
	s := ask(t, api.Services{Reader: ones("page:a", "shop:a")}, api.Config{}).of(t, "page:")
	for match, want := range map[string]int{"shop:a": 403, "shop:*": 403, "page:a": 200, "page:*": 200, "*": 200, "p*": 200} {
		status, text, _ := s.call(t, "GET", "/metrics/counters?match="+url.QueryEscape(match), "")
		if status != want || strings.Contains(text, `"shop:a"} `) || want == 200 && !strings.Contains(text, `{counter="page:a"} `) ||
			want == 403 && !strings.Contains(text, `"field":"match","limit":"page:*"`) {
			t.Errorf("%s as page:*'s: got %d %s, want %d", match, status, text, want)
		}
	}
}

// A * elsewhere than at the end is part of the name.
func TestMetricsAskTheReader(t *testing.T) {
	t.Parallel()
	f := newFake()
	ask(t, api.Services{Reader: f}, api.Config{}).want(t, "GET", "/metrics/counters?match=b&match=a*c&match=b", "", 200, "")
	if !slices.Equal(f.asked, []string{"a*c", "b"}) {
		t.Errorf("the reader was asked for %q", f.asked)
	}
}
