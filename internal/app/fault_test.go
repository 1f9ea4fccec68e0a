package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
)

// A faultyStore applies commits and loses the answers while broken is set. gate, if
// set, holds commits back until it is closed, whatever their context says.
type faultyStore struct {
	store.Store
	broken atomic.Bool
	gate   chan struct{}
}

func (f *faultyStore) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	if f.gate != nil {
		<-f.gate
	}
	folded, err := f.Store.Fold(ctx, c)
	if f.broken.Load() {
		return store.CommitResult{}, errors.New("answer lost")
	}
	return folded, err
}

// startFaulty runs `up` with backends that change puts its hands on. The caller ends it.
func startFaulty(t *testing.T, cfg Config, change func(*backends)) *running {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	a, err := newApp(cfg, func(cfg Config) (*backends, error) {
		b, err := openBackends(cfg)
		if err == nil {
			change(b)
		}
		return b, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return run(t, a)
}

// Without markers an unknown outcome cannot be repeated: the process ends with an error
// at once, the caller learns that the outcome is unknown, and nothing is applied twice.
func TestLostAnswerOfTheStoreEndsTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := &faultyStore{}
	r := startFaulty(t, Config{Store: "pebble:" + dir, ShutdownTimeout: unhurried}, func(b *backends) { f.Store, b.store = b.store, f })
	r.incr(t, `{"counter":"a"}`)
	f.broken.Store(true)
	status, text, err := r.try("POST", "/v1/increments", `{"counter":"a"}`)
	if err != nil || status != http.StatusGatewayTimeout || !strings.Contains(text, "outcome-unknown") {
		t.Errorf("got %d %s %v, want 504 outcome-unknown", status, text, err)
	}
	if err := r.endsItself(t); err == nil || !strings.Contains(err.Error(), "aggregator ended") {
		t.Errorf("Run returned %v, want that the aggregator ended", err)
	}
	start(t, dir).wantTotal(t, "a", 2)
}

// Messages that no aggregator will ever take do not hold up the end of a process whose
// aggregator has failed.
func TestFailureDoesNotWaitForMessagesInLine(t *testing.T) {
	t.Parallel()
	f := &faultyStore{gate: make(chan struct{})}
	r := startFaulty(t, Config{Store: "pebble:" + t.TempDir(), RequestTimeout: unhurried, ShutdownTimeout: unhurried},
		func(b *backends) { f.Store, b.store = b.store, f })
	var posts sync.WaitGroup
	sent := 0
	post := func() {
		sent++
		posts.Go(func() {
			if status, text, err := r.try("POST", "/v1/increments", `{"counter":"a"}`); err == nil && status != http.StatusGatewayTimeout {
				t.Errorf("got %d %s, want 504", status, text)
			}
		})
	}
	r.poll(t, "all calls to the bus busy", func() bool {
		post()
		return r.metric(t, "countmill_messages_in_flight") == 8 && r.metric(t, "countmill_open_entries") > 0
	})
	r.poll(t, "all requests inside", func() bool { // a later request rightly gets the answer that it was not counted
		return serviceOf[ingest](t, r.App).routes.Sending() == sent
	})
	f.broken.Store(true)
	close(f.gate)
	if err := r.endsItself(t); err == nil || !strings.Contains(err.Error(), "aggregator ended") {
		t.Errorf("Run returned %v, want that the aggregator ended", err)
	}
	posts.Wait()
	r.client.CloseIdleConnections()
}

// endsItself is the error of Run, which must return at once: not when the time for a stop is up.
func (r *running) endsItself(t *testing.T) error {
	t.Helper()
	defer r.client.CloseIdleConnections()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(patience):
		t.Fatal("the App goes on")
		return nil
	}
}

// A store that hangs does not keep the process from ending in time. The error names the step
// that is not done.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	f := &faultyStore{gate: make(chan struct{})}
	r := startFaulty(t, Config{Store: "pebble:" + t.TempDir(), ShutdownTimeout: 2 * time.Second},
		func(b *backends) { f.Store, b.store = b.store, f })
	posted := make(chan int, 1)
	go func() {
		status, _, _ := r.try("POST", "/v1/increments", `{"counter":"a"}`)
		posted <- status
	}()
	r.poll(t, "taken", func() bool { return r.metric(t, "countmill_held_messages") > 0 || len(posted) > 0 })
	if err := r.end(t); err == nil { // or not at all, as the store hangs until below
		t.Error("ended without an error, want one that names what is not done")
	}
	if status := <-posted; status == http.StatusAccepted {
		t.Errorf("an increment that was never committed was answered with 202")
	}
	close(f.gate)
	serviceOf[*aggregating](t, r.App).running.wait(t.Context())
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	used := t.TempDir()
	start(t, used)
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{Listen: ln.Addr().String(), Store: "pebble:" + t.TempDir()}, "the address is in use; is another countmill running?"},
		{Config{Listen: "192.0.2.1:0", Insecure: true, Store: "pebble:" + t.TempDir()}, "--listen 192.0.2.1:0: "},
		{Config{Listen: "127.0.0.1:0", Store: "pebble:" + used}, "is in use by another process"},
		{Config{Listen: "127.0.0.1:0", Store: "pebble:" + filepath.Join(used, "LOCK", "x")}, "a file has that name"},
		{Config{Listen: "127.0.0.1:0", Store: "pebble:" + t.TempDir(), Tokens: used + "/none"}, "--tokens: "},
	} {
		a, err := New(test.cfg)
		if err == nil || errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("New(%+v): got error %v, want %q", test.cfg, err, test.want)
		}
		if a != nil {
			t.Error(a.Close())
		}
	}
}
