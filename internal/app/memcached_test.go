package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/testing/emulator"
)

// memcached is a help and no more: while it hangs or is gone, totals are right and the
// process is ready, and nothing is restarted when it is back.
func TestMemcachedComesAndGoes(t *testing.T) {
	t.Parallel()
	server := emulator.Memcached(t)
	r := startWith(t, Config{Cache: "memcached://" + server.Host()})
	r.waitReady(t)
	r.incr(t, `{"counter":"before","delta":7}`)
	r.wantCached(t, "before", 7)

	for name, away := range map[string]struct{ begin, end func() }{
		"paused":  {func() { server.Pause(t) }, func() { server.Resume(t) }},
		"stopped": {server.Stop, func() { server.Start(t) }},
	} {
		away.begin()
		for n := range int64(20) {
			r.incr(t, `{"counter":"`+name+`"}`)
			if total, source := r.total(t, name, "1h"); total != n+1 || source != "store" {
				t.Errorf("%s: got %d from the %s, want %d from the store", name, total, source, n+1)
			}
			if total, source := r.total(t, "before", "1h"); total != 7 || source != "store" {
				t.Errorf("%s: got %d from the %s, want 7 from the store", name, total, source)
			}
		}
		r.poll(t, "degraded", func() bool {
			status, text := r.call(t, "GET", "/readyz", "")
			return status == http.StatusOK && strings.Contains(text, `"degraded"`)
		})
		away.end()
		r.wantCached(t, name, 20)
		r.wantCached(t, "before", 7)
		r.waitReady(t)
	}
}

func (r *running) total(t *testing.T, counter, staleness string) (total int64, source string) {
	t.Helper()
	status, text := r.call(t, "GET", "/v1/totals?counter="+url.QueryEscape(counter)+"&max_staleness="+staleness, "")
	var got struct {
		Totals []struct {
			Total  int64
			Source string
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 || len(got.Totals) != 1 {
		t.Fatalf("total of %q: got %d %s (%v)", counter, status, text, err)
	}
	return got.Totals[0].Total, got.Totals[0].Source
}

// wantCached waits until a total comes from the cache. It must be right all the while.
func (r *running) wantCached(t *testing.T, counter string, want int64) {
	t.Helper()
	r.poll(t, counter+" cached", func() bool {
		total, source := r.total(t, counter, "1h")
		if total != want {
			t.Fatalf("got %d of %q from the %s, want %d", total, counter, source, want)
		}
		return source == "cache"
	})
}

// startCached runs `up` on dir, with a cache that others have too.
func startCached(t *testing.T, dir, host string) *running {
	t.Helper()
	r := startWith(t, Config{Store: "pebble:" + escapeDir(dir), Cache: "memcached://" + host})
	r.waitReady(t)
	return r
}

// A copy of a directory has the id of the original, and totals of its own once both run.
func TestCopiedDirectoryHasItsOwnCachedTotals(t *testing.T) {
	t.Parallel()
	host, dir := emulator.Memcached(t).Host(), t.TempDir()+"/data"
	r := startCached(t, dir, host)
	r.incr(t, `{"counter":"c","delta":7}`)
	r.stop(t)
	copied := t.TempDir() + "/data"
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	other := startCached(t, t.TempDir()+"/other", host)
	both := []*running{startCached(t, dir, host), startCached(t, copied, host), other}
	for i, r := range both {
		r.incr(t, fmt.Sprintf(`{"counter":"c","delta":%d}`, 100*(i+1)))
	}
	for i, want := range []int64{107, 207, 300} {
		for range 3 {
			both[i].wantCached(t, "c", want)
		}
	}
}
