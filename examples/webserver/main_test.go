package main

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A tally is an adder that only adds up.
type tally map[string]int64

func (t tally) Add(counter string, delta int64) error {
	t[counter] += delta
	return nil
}

func TestCountsByPatternAndStatus(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a/{x}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	got := make(tally)
	h := countRoutes(mux, got)
	for _, target := range []string{"/a/1", "/a/2", "/gone", "/x"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", target, nil))
	}
	want := tally{"route:GET /a/{x} 2xx": 2, "route:/gone 4xx": 1, "route:none 4xx": 1}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Answered requests are counted, and the next process still has their counts.
func TestCountsSurviveARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	serve(t, dir, func(base string) {
		for range 3 {
			get(t, base+"/hello/gopher")
		}
	})
	serve(t, dir, func(base string) {
		const want = "       3  route:GET /hello/{name} 2xx\n"
		if got := get(t, base+"/counts"); !strings.Contains(got, want) {
			t.Errorf("after a restart /counts is %q, want a row %q", got, want)
		}
	})
}

// serve runs the server while f uses it, and ends it in order.
func serve(t *testing.T, dir string, f func(base string)) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, ln, dir) }()
	f("http://" + ln.Addr().String())
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not end")
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s %q, %v", url, res.Status, body, err)
	}
	return string(body)
}
