package app

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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
	a, err := New(Config{
		Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir()), Cache: "memcached://" + server.Host(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a)
	defer r.stop(t)
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
		if status, text := r.call(t, "GET", "/readyz", ""); status != http.StatusOK || !strings.Contains(text, `"degraded"`) {
			t.Errorf("%s: readyz is %d %s, want 200 degraded", name, status, text)
		}
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
	a, err := New(Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(dir), Cache: "memcached://" + host})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a)
	t.Cleanup(func() { r.stop(t) })
	r.waitReady(t)
	return r
}

// A directory that was wiped is another database, under the name of the one before.
func TestWipedDirectoryHasNoCachedTotals(t *testing.T) {
	t.Parallel()
	host, dir := emulator.Memcached(t).Host(), t.TempDir()+"/data"
	r := startCached(t, dir, host)
	r.incr(t, `{"counter":"c","delta":7}`)
	r.wantCached(t, "c", 7)
	r.stop(t)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r = startCached(t, dir, host)
	if total, source := r.total(t, "c", "1h"); total != 0 || source != "store" {
		t.Errorf("a new database serves %d from the %s, want 0 from the store", total, source)
	}
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

// A switch between reader and memcached flips a bit of each value. No total is wrong, all come
// from the store, and a metric counts the damaged values.
func TestFlippedBitsAreCounted(t *testing.T) {
	t.Parallel()
	r := startCached(t, t.TempDir(), flipping(t, emulator.Memcached(t).Host()))
	for n := range 50 {
		name := fmt.Sprint("counter-", n)
		r.incr(t, fmt.Sprintf(`{"counter":%q,"delta":%d}`, name, n+1))
		for range 3 {
			if total, source := r.total(t, name, "1h"); total != int64(n+1) || source != "store" {
				t.Fatalf("got %d from the %s, want %d from the store", total, source, n+1)
			}
		}
	}
	if errs := r.metric(t, "countmill_cache_errors_total"); errs == 0 {
		t.Error("countmill_cache_errors_total is 0")
	}
}

// flipping is a server before host that flips one bit of each value that it answers with.
func flipping(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", host)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() { _ = flip(client, bufio.NewReader(server)); _ = client.Close() }()
		}
	}()
	return l.Addr().String()
}

func flip(to io.Writer, from *bufio.Reader) error {
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return err
		}
		out := []byte(line)
		var key string
		var flags, size int
		if n, _ := fmt.Sscanf(line, "VALUE %s %d %d", &key, &flags, &size); n == 3 {
			value := make([]byte, size+2)
			if _, err := io.ReadFull(from, value); err != nil {
				return err
			}
			value[rand.IntN(size)] ^= 1 << rand.IntN(8)
			out = append(out, value...)
		}
		if _, err := to.Write(out); err != nil {
			return err
		}
	}
}
