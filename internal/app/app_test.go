package app

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
)

// Pebble leaves a goroutine behind when a directory cannot be opened, as its lock is
// held; the process ends then.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(emulator.Around(m),
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"), // begun by Google's libraries as they load
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2/vfs.(*diskHealthCheckingFS).startTickerLocked.func1"),
		// Google's client's own, which sees only every 10s that its stream has ended.
		goleak.IgnoreTopFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"),
	)
}

// Repeats count once: in one request, in one window, in flight together, after a
// restart.
func TestRepeatsCountOnce(t *testing.T) {
	t.Parallel()
	const body = `[{"counter":"keyed","delta":5},{"counter":"other","delta":2}]`
	const event = `{"counter":"event","delta":3,"id":"e1"}`
	dir := t.TempDir()
	r := start(t, dir)
	check := func() {
		t.Helper()
		for counter, want := range map[string]int64{"keyed": 5, "other": 2, "event": 3} {
			r.wantTotal(t, counter, want)
		}
	}
	r.incr(t, "["+event+","+event+"]") // in one request
	var wg sync.WaitGroup
	for range 20 { // in one window or in flight together
		wg.Go(func() { r.incr(t, body, "Idempotency-Key", "k1") })
		wg.Go(func() { r.incr(t, event) })
	}
	wg.Wait()
	check()
	r.incr(t, body, "Idempotency-Key", "k1") // later
	r.incr(t, event)
	r.incr(t, event, "Idempotency-Key", "k2") // by another way
	check()
	r.stop(t)

	r = start(t, dir) // after a restart
	r.incr(t, body, "Idempotency-Key", "k1")
	r.incr(t, event)
	check()
	if got := r.metric(t, "countmill_duplicate_parts_total"); got < 2 {
		t.Errorf("countmill_duplicate_parts_total is %v, want at least 2", got)
	}
}

// Every process refuses a key with another body, also one started since. The first body counts, and
// may be repeated.
func TestKeyWithAnotherBody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir)
	r.incr(t, `{"counter":"a","delta":1}`, "Idempotency-Key", "k")
	for range 2 {
		status, text := r.call(t, "POST", "/v1/increments", `{"counter":"a","delta":2}`, "Idempotency-Key", "k")
		if status != http.StatusUnprocessableEntity || !strings.Contains(text, "problem:id-reused") {
			t.Errorf("got %d %s, want 422 id-reused", status, text)
		}
		r.wantTotal(t, "a", 1)
		r.stop(t)
		r = start(t, dir)
	}
	status, text := r.call(t, "POST", "/v1/increments", `[{"counter":"a","delta":2},{"counter":"a","id":"x"}]`, "Idempotency-Key", "k")
	if status != http.StatusUnprocessableEntity || !strings.Contains(text, "problem:id-reused") {
		t.Errorf("got %d %s, want 422 id-reused", status, text)
	}
	r.incr(t, `{"counter":"a","delta":1}`, "Idempotency-Key", "k")
	r.wantTotal(t, "a", 1)
	if got := r.metric(t, "countmill_dead_letters_total"); got != 0 {
		t.Errorf("%v dead letters, want none", got)
	}
}

func TestRunsOnce(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.stop(t)
	if err := r.Run(t.Context()); err == nil {
		t.Error("a second Run returned nil")
	}
}

func TestCloseReleasesWhatNewOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 2 { // the second needs the lock of the first
		a, err := New(Config{Listen: "127.0.0.1:0", Store: "pebble:" + dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.Close(), a.Close()); err != nil {
			t.Error(err)
		}
	}
}
