package app

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	_ "net/http/pprof"
	"strings"
	"testing"
)

// profiled runs `up` with profiles, and returns their address.
func profiled(t *testing.T) (r *running, url string) {
	t.Helper()
	r = startWith(t, Config{Pprof: "127.0.0.1:0", Profiles: http.DefaultServeMux})
	t.Cleanup(r.client.CloseIdleConnections)
	return r, "http://" + serviceOf[*profiling](t, r.App).listener.Addr().String() + "/debug/pprof/"
}

func (r *running) get(t *testing.T, url string) (status int, body []byte) {
	t.Helper()
	res, err := r.client.Get(url)
	must(t, err)
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, body
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	r, url := profiled(t)
	defer r.stop(t)
	if status, body := r.get(t, url+"goroutine?debug=2"); status != http.StatusOK || !bytes.Contains(body, []byte("app.(*App).Run")) {
		t.Errorf("goroutine?debug=2: got %d\n%.200s", status, body)
	}
	if status, _ := r.get(t, r.url+"/debug/pprof/"+"heap"); status != http.StatusNotFound {
		t.Errorf("the address of the API has profiles too: got %d", status)
	}
}

// Without the flag nothing listens, and with it only this machine and no web page gets in.
func TestProfilesAreForThisMachine(t *testing.T) {
	t.Parallel()
	for _, of := range start(t, t.TempDir()).services {
		if _, is := of.service.(*profiling); is {
			t.Error("profiles are served without being asked for")
		}
	}
	for addr, want := range map[string]string{
		"0.0.0.0:0": "other machines could reach it", ":6060": "other machines could reach it", "example.com:6060": "other machines could reach it",
		"6060": "write 127.0.0.1:6060", "localhost:x": "must be HOST:PORT",
	} {
		if err := (Config{Pprof: addr}).Check(); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "--pprof") || !strings.Contains(err.Error(), want) {
			t.Errorf("--pprof %s: got %v, want %q", addr, err, want)
		}
	}
	r, url := profiled(t)
	defer r.stop(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"heap", nil)
	must(t, err)
	req.Host = "evil.example.com"
	res, err := r.client.Do(req)
	must(t, err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a page whose name leads here got %s, want 403", res.Status)
	}
}

// An address that is taken is an error at the start, and leaves nothing open.
func TestProfilesNeedTheirAddress(t *testing.T) {
	t.Parallel()
	r, url := profiled(t)
	defer r.stop(t)
	dir := t.TempDir()
	cfg := Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(dir), Pprof: strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/debug/pprof/"), Profiles: http.DefaultServeMux}
	if a, err := New(cfg); a != nil || err == nil || !strings.Contains(err.Error(), "the address is in use") || !strings.Contains(err.Error(), "--pprof HOST:PORT") {
		t.Errorf("got %v, %v", a, err)
	}
	start(t, dir) // fails if the store is still open
}
