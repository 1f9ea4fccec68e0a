package app

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// unhurried is a time for a stop. No test waits so long: each expects a stop at once.
const unhurried = time.Hour

// A request that is being sent when the signal comes is accepted and counted: the roles
// behind it are there until it is done.
func TestStopWaitsForRequestsInside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir)
	r.waitReady(t)
	body, rest := io.Pipe()
	req, err := http.NewRequest("POST", r.url+"/v1/increments", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	status := make(chan int, 1)
	go func() {
		res, err := r.client.Do(req)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		res.Body.Close()
		status <- res.StatusCode
	}()
	io.WriteString(rest, `{"counter":`)
	r.poll(t, "inside", func() bool {
		return serviceOf[ingest](t, r.App).routes.Sending() == 1
	})
	r.cancel()
	r.poll(t, "refusing others", func() bool {
		code, _ := r.call(t, "POST", "/v1/increments", `{"counter":"other"}`)
		return code == http.StatusServiceUnavailable
	})
	r.wantTotal(t, "a", 0) // reads go on
	io.WriteString(rest, `"a"}`)
	rest.Close()
	if got := <-status; got != http.StatusAccepted {
		t.Errorf("the request that was inside: got %d, want 202", got)
	}
	r.stop(t)
	start(t, dir).wantTotal(t, "a", 1)
}

// A watcher does not keep the process from stopping: its stream is ended, and not cut when
// the time for a stop is up.
func TestStopEndsWatchers(t *testing.T) {
	t.Parallel()
	r := startFaulty(t, Config{Store: "pebble:" + escapeDir(t.TempDir()), ShutdownTimeout: unhurried}, func(*backends) {})
	res, err := r.client.Get(r.url + "/v1/watch?counter=a")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	r.stop(t) // which does not wait as long as the process may take
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
}
