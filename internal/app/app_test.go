package app

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
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

// The first total comes within a second. A slow or busy machine gets more time: 20 times the
// least there is to do, which is to open the store's database, write to it and sync it. The
// test measures time, so nothing else of this package runs beside it.
func TestUpAnswersWithinASecond(t *testing.T) {
	longtest.Only(t, "measures time")
	var took, limit time.Duration
	for range 5 {
		limit = time.Second + 20*leastThereIsToDo(t)
		begin := time.Now()
		r := start(t, t.TempDir())
		r.incr(t, `{"counter":"page:/home"}`)
		r.wantTotal(t, "page:/home", 1)
		took = time.Since(begin)
		r.stop(t)
		if took <= limit {
			return
		}
	}
	t.Errorf("the first total came after %s, want within %s", took, limit)
}

func leastThereIsToDo(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	db, err := pebbledb.Open(t.TempDir(), &pebbledb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Set([]byte("a"), nil, pebbledb.Sync); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return took
}

func TestGetIncrGetIsNeverStale(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			counter := fmt.Sprint("c", worker)
			for i := range int64(50) {
				r.wantTotal(t, counter, i)
				r.incr(t, `{"counter":"`+counter+`"}`)
				r.wantTotal(t, counter, i+1)
			}
		})
	}
	wg.Wait()
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

// Names that paths like to clean are three counters on every route.
func TestAwkwardNamesOnEveryRoute(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	for i, name := range []string{"a//b", "https://x.org/p", "a/../b", "a/b", "b"} {
		want := int64(i + 1)
		r.incr(t, fmt.Sprintf(`{"counter":%q,"delta":%d}`, name, want))
		r.wantTotal(t, name, want)
		for _, get := range []struct{ method, path, body string }{
			{"GET", "/v1/counters/" + url.PathEscape(name), ""},
			{"GET", "/v1/counters?limit=1&prefix=" + url.QueryEscape(name), ""},
			{"POST", "/v1/totals", fmt.Sprintf(`{"counters":[%q]}`, name)},
		} {
			status, text := r.call(t, get.method, get.path, get.body)
			if status != 200 || !strings.Contains(text, fmt.Sprintf(`"counter":%q,"total":%d,`, name, want)) {
				t.Errorf("%s %s: got %d %s, want %q with %d", get.method, get.path, status, text, name, want)
			}
		}
		r.wantWatched(t, name, want)
	}
}

// wantWatched reads the first event of a stream.
func (r *running) wantWatched(t *testing.T, name string, want int64) {
	t.Helper()
	res, err := r.client.Get(r.url + "/v1/watch?counter=" + url.QueryEscape(name))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 4096)
	n, _ := res.Body.Read(buf)
	if !strings.Contains(string(buf[:n]), fmt.Sprintf(`"counter":%q,"total":%d,`, name, want)) {
		t.Errorf("watch %q: got %s, want total %d", name, buf[:n], want)
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
