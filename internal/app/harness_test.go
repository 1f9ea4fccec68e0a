package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// patience is how long something may take that must happen: longer than any machine needs.
const patience = 3 * time.Minute

// A running App for tests, on a port of its own.
type running struct {
	*App
	url    string
	client *http.Client
	cancel context.CancelFunc
	ended  chan error
}

// start runs `up` on dir.
func start(t testing.TB, dir string) *running {
	t.Helper()
	return startWith(t, Config{Store: "pebble:" + escapeDir(dir)})
}

// startWith runs `up` on a directory of its own unless the configuration has a store. It is stopped at
// the end of the test unless that happened before; an error of the stop fails the test.
func startWith(t testing.TB, cfg Config) *running {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	if cfg.Store == "" {
		cfg.Store = "pebble:" + escapeDir(t.TempDir())
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a)
	t.Cleanup(func() { r.stop(t) })
	return r
}

func run(t testing.TB, a *App) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{App: a, url: "http://" + a.Addr(), cancel: cancel, ended: make(chan error, 1)}
	r.client = &http.Client{Transport: &http.Transport{}, Timeout: patience}
	go func() { r.ended <- a.Run(ctx) }()
	return r
}

// serviceOf is the service of a type that an App has.
func serviceOf[S service](t testing.TB, a *App) S {
	t.Helper()
	for _, of := range a.services {
		if s, ok := of.service.(S); ok {
			return s
		}
	}
	t.Fatalf("no %T among the services", *new(S))
	panic("unreachable")
}

func (r *running) stop(t testing.TB) {
	t.Helper()
	if err := r.end(t); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// end stops the App and returns the error of Run. A second time it does nothing.
func (r *running) end(t testing.TB) error {
	t.Helper()
	r.client.CloseIdleConnections()
	r.cancel()
	select {
	case err, ok := <-r.ended:
		if ok {
			close(r.ended)
		}
		return err
	case <-time.After(patience):
		t.Fatal("the App does not end")
		return nil
	}
}

// call returns status and body of an answer.
func (r *running) call(t testing.TB, method, path, body string, header ...string) (int, string) {
	t.Helper()
	status, text, err := r.try(method, path, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, text
}

func (r *running) try(method, path, body string, header ...string) (int, string, error) {
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

func (r *running) incr(t testing.TB, body string, header ...string) {
	t.Helper()
	if status, text := r.call(t, "POST", "/v1/increments", body, header...); status != http.StatusAccepted {
		t.Fatalf("POST %s %q: got %d %s, want 202", body, header, status, text)
	}
}

func (r *running) wantTotal(t testing.TB, counter string, want int64) {
	t.Helper()
	status, text := r.call(t, "GET", "/v1/totals?counter="+url.QueryEscape(counter), "")
	var got struct{ Totals []struct{ Total int64 } }
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 || len(got.Totals) != 1 {
		t.Fatalf("total of %q: got %d %s (%v)", counter, status, text, err)
	}
	if got.Totals[0].Total != want {
		t.Errorf("total of %q is %d, want %d", counter, got.Totals[0].Total, want)
	}
}

// metric is the sum of the samples of one name.
func (r *running) metric(t testing.TB, name string) float64 {
	t.Helper()
	_, text := r.call(t, "GET", "/metrics", "")
	sum, found := 0.0, false
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(rest[strings.LastIndex(rest, " "):], &v); err != nil {
			t.Fatalf("metric line %q: %v", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		t.Fatalf("no metric %s in:\n%s", name, text)
	}
	return sum
}

func (r *running) waitReady(t testing.TB) {
	t.Helper()
	r.poll(t, "ready", func() bool {
		status, text := r.call(t, "GET", "/readyz", "")
		return status == 200 && strings.Contains(text, `"ready"`)
	})
}

func (r *running) poll(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("not %s in time", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
