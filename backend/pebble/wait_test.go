package pebble

import (
	"context"
	"testing"
	"time"
)

// testContext is for the other process, which has no testing.T.
var testContext = context.Background()

// waitFor waits for background work of Pebble, for longer than any machine needs.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2m: %s", what)
		}
	}
}
