package app

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// A caller that gets "outcome unknown" repeats with its key, and counts once.
func TestRepeatAfterUnknownOutcome(t *testing.T) {
	t.Parallel()
	const body = `{"counter":"a","delta":4}`
	f := &faultyStore{gate: make(chan struct{})}
	r := startFaulty(t, Config{Store: "pebble:" + t.TempDir(), RequestTimeout: time.Second},
		func(b *backends) { f.Store, b.store = b.store, f })
	defer r.stop(t)
	r.poll(t, "told that the outcome is unknown", func() bool {
		status, text := r.call(t, "POST", "/v1/increments", body, "Idempotency-Key", "k")
		if status != http.StatusGatewayTimeout && status != http.StatusServiceUnavailable { // a busy machine may not come to sending it
			t.Fatalf("got %d %s, want 504", status, text)
		}
		return status == http.StatusGatewayTimeout
	})
	close(f.gate)
	r.poll(t, "accepted", func() bool {
		status, _ := r.call(t, "POST", "/v1/increments", body, "Idempotency-Key", "k")
		return status == http.StatusAccepted
	})
	r.poll(t, "read", func() bool {
		status, text := r.call(t, "GET", "/v1/counters/a", "")
		if status == http.StatusOK && !strings.Contains(text, `"total":4,`) {
			t.Fatalf("got %s, want 4", text)
		}
		return status == http.StatusOK
	})
}
