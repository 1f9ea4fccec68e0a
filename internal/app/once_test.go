package app

import (
	"net/http"
	"testing"
	"time"
)

// A caller that was told "outcome unknown" repeats with its key, and counts once.
func TestRepeatAfterUnknownOutcome(t *testing.T) {
	t.Parallel()
	const body = `{"counter":"a","delta":4}`
	f := &faultyStore{gate: make(chan struct{})}
	r := startFaulty(t, Config{Store: "pebble:" + t.TempDir(), RequestTimeout: 100 * time.Millisecond},
		func(b *backends) { f.store, b.store = b.store, f })
	defer r.stop(t)
	if status, text := r.call(t, "POST", "/v1/increments", body, "Idempotency-Key", "k"); status != http.StatusGatewayTimeout {
		t.Fatalf("got %d %s, want 504", status, text)
	}
	close(f.gate)
	r.poll(t, "accepted", func() bool {
		status, _ := r.call(t, "POST", "/v1/increments", body, "Idempotency-Key", "k")
		return status == http.StatusAccepted
	})
	r.wantTotal(t, "a", 4)
}

// Where nothing can repeat nothing is kept but the counter: its record once, and one
// shard for each commit.
func TestNothingIsKeptForEachRequest(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	for range 300 {
		r.incr(t, `{"counter":"a"}`)
	}
	written, commits := r.metric(t, "countmill_entities_written_total"), r.metric(t, "countmill_commits_total")
	if written != commits+1 {
		t.Errorf("%v entities written in %v commits, want one each and the record", written, commits)
	}
	r.wantTotal(t, "a", 300)
}
