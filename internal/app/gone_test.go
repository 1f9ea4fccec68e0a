package app

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// No increment is accepted into files that were removed, moved away or replaced.
func TestNothingIsAcceptedWithoutTheDataDirectory(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(t *testing.T, dir string){
		"removed": func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
		"emptied": func(t *testing.T, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			must(t, err)
			for _, file := range files {
				must(t, os.RemoveAll(file))
			}
		},
		"its logs removed": func(t *testing.T, dir string) {
			logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
			must(t, err)
			for _, log := range logs {
				must(t, os.Remove(log))
			}
		},
		"moved away": func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+".old")) },
		"replaced by a copy": func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".old"))
			must(t, os.CopyFS(dir, os.DirFS(dir+".old")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			r := startWith(t, Config{Store: "pebble:" + dir, RequestTimeout: 300 * time.Millisecond, ShutdownTimeout: time.Second})
			defer func() { _ = r.end(t) }() // some increments cannot be committed
			const event, keyed = `{"counter":"event","id":"e1"}`, `{"counter":"keyed"}`
			// A busy machine may need more than one request of 300 ms.
			r.poll(t, "counted by its id", func() bool {
				status, _ := r.call(t, "POST", "/v1/increments", event)
				return status == http.StatusAccepted
			})
			r.poll(t, "counted by its key", func() bool {
				status, _ := r.call(t, "POST", "/v1/increments", keyed, "Idempotency-Key", "k1")
				return status == http.StatusAccepted
			})
			r.waitReady(t)
			remove(t, dir)
			for _, body := range []string{`{"counter":"a"}`, event, `{"counter":"b","id":"e2"}`, `{"counter":"a"}`} {
				if status, text := r.call(t, "POST", "/v1/increments", body); status == http.StatusAccepted || status < 429 {
					t.Errorf("%s: got %d %s, want that it is not taken", body, status, text)
				}
			}
			if status, text := r.call(t, "POST", "/v1/increments", keyed, "Idempotency-Key", "k1"); status < 429 {
				t.Errorf("the repeat of a key: got %d %s, want that it is not taken", status, text)
			}
			r.poll(t, "not ready", func() bool {
				status, _ := r.call(t, "GET", "/readyz", "")
				return status == http.StatusServiceUnavailable
			})
		})
	}
}

// While the directory is missing, increments are refused at once, however long a request may take.
func TestNobodyWaitsForTheDataDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	r := startWith(t, Config{Store: "pebble:" + dir, RequestTimeout: time.Hour, ShutdownTimeout: time.Second})
	defer func() { _ = r.end(t) }() // some increments cannot be committed
	r.incr(t, `{"counter":"a"}`)
	must(t, os.Rename(dir, dir+".old"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for path, body := range map[string]string{"/v1/increments": `{"counter":"a"}`, "/v1/sequences/next": `{"sequence":"s"}`} {
		req, err := http.NewRequestWithContext(ctx, "POST", r.url+path, strings.NewReader(body))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		res, err := r.client.Do(req)
		must(t, err)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("POST %s: got %d, want 503", path, res.StatusCode)
		}
	}
	must(t, os.Rename(dir+".old", dir))
	r.incr(t, `{"counter":"a"}`)
	r.wantTotal(t, "a", 2)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
