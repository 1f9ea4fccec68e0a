package app

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// The names of metrics are for ever, like those of routes.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.incr(t, `[{"counter":"a"},{"counter":"b","id":"x"}]`)
	r.incr(t, `{"counter":"b","id":"x"}`)
	r.wantTotal(t, "a", 1)
	r.poll(t, "alive", func() bool { return r.metric(t, "countmill_aggregators_alive") == 1 })
	for name, want := range map[string]float64{
		"countmill_increments_total":          3,
		"countmill_increments_durable_total":  3,
		"countmill_messages_sent_total":       2,
		"countmill_messages_received_total":   2,
		"countmill_entries_folded_total":      2,
		"countmill_settings_version":          1,
		"countmill_dedup_window_seconds":      192 * 3600,
		"countmill_duplicate_parts_total":     1,
		"countmill_dead_letters_total":        0,
		"countmill_fold_duration_seconds_sum": -1,
		"countmill_commits_total":             -1,
		"countmill_commits_contended_total":   0,
		"countmill_counters_grown_total":      0,
		"countmill_overflow_group_sums_total": 0,
		"countmill_unfinished_indexes":        0,
		"countmill_entities_written_total":    -1,
		"countmill_entities_read_total":       -1,
		"countmill_totals_served_total":       1,
		"countmill_total_age_seconds_count":   1,
		"countmill_lag_seconds":               0,
		"countmill_unseen_seconds":            0,
		"countmill_replaying_dead_letters":    0,
		"countmill_replay_age_seconds":        0,
		"countmill_clock_skew_seconds":        0,
		"countmill_store_disk_bytes":          -1,
		"countmill_store_written_bytes_total": -1,
		"countmill_build_info":                1,
		"go_goroutines":                       -1,
		"process_start_time_seconds":          -1,
	} {
		if got := r.metric(t, name); got != want && (want != -1 || got <= 0) {
			t.Errorf("%s is %v, want %v (-1: more than 0)", name, got, want)
		}
	}
	_, text := r.call(t, "GET", "/metrics", "")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
