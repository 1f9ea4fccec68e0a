package app

import (
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
)

// A token's limits are read from the file, kept, and shown in /metrics.
func TestTokensHaveLimits(t *testing.T) {
	t.Parallel()
	file, secrets := authtest.File(t,
		auth.Token{Name: "guest", Scopes: []auth.Scope{auth.Publish, auth.Metrics}, Limits: auth.Limits{NewCounters: 2}},
		auth.Token{Name: "free", Scopes: []auth.Scope{auth.Publish}})
	r := startWith(t, Config{Tokens: file})
	guest := []string{"Authorization", "Bearer " + secrets[0]}
	r.incr(t, `[{"counter":"a"},{"counter":"b"},{"counter":"c"}]`, guest...)
	status, text := r.call(t, "POST", "/v1/increments", `{"counter":"d"}`, guest...)
	if status != 429 || !strings.Contains(text, `"type":"urn:countmill:problem:quota"`) || !strings.Contains(text, `"field":"new_counters_per_hour","limit":"2"`) {
		t.Errorf("a new counter beyond the limit: got %d %s", status, text)
	}
	r.incr(t, `[{"counter":"a"},{"counter":"b"},{"counter":"c"}]`, guest...)
	r.incr(t, `{"counter":"d"}`, "Authorization", "Bearer "+secrets[1])
	_, metrics := r.call(t, "GET", "/metrics", "", guest...)
	if want := "countmill_quota_refused_requests_total{token=\"guest\"} 1\n"; !strings.Contains(metrics, want) || strings.Contains(metrics, `countmill_quota_refused_requests_total{token="free"}`) {
		t.Errorf("metrics lack %q, or have one of a token without limits", want)
	}
}
