package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/embedded"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/reader"
)

func one(counter string) countmill.Increment { return countmill.Increment{Counter: counter, Delta: 1} }

// A total contains everything that was published before it, by any goroutine.
func TestPublishedIsInTheTotal(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprint("c", i)
			for n := range int64(50) {
				if err := db.Publish(t.Context(), one(name), one("all")); err != nil {
					t.Error(err)
					return
				}
				wantTotal(t, db, name, n+1)
			}
		})
	}
	all.Wait()
	wantTotal(t, db, "all", 400)
	wantTotal(t, db, "nobody", 0)
}

// Close writes what Add took, and the next Open finds it. The directory is free then.
func TestAddedSurvivesClose(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a%b?c")
	db := open(t, dir)
	for range 1000 {
		must(t, db.Add("a", 2))
	}
	if _, err := embedded.Open(dir); err == nil || !strings.Contains(err.Error(), "embedded: open "+dir) || strings.Contains(err.Error(), "--") {
		t.Errorf("a second Open: got %v, want an error that names the directory and no flag", err)
	}
	must(t, db.Close())
	wantTotal(t, open(t, dir), "a", 2000)
}

// After Close nothing is taken, and nothing hangs.
func TestClosed(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	handle, err := db.Counter("a")
	must(t, err)
	must(t, db.Publish(t.Context(), one("a")))
	server := httptest.NewServer(db.Handler())
	defer server.Close()
	var closers sync.WaitGroup
	for range 3 {
		closers.Go(func() {
			if err := db.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	closers.Wait()
	<-db.Done()
	_, total := db.Total(t.Context(), "a")
	var listed, watched error
	for _, err := range db.List(t.Context(), "") {
		listed = err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, err := range db.Watch(ctx) {
		watched = errors.Join(watched, err)
	}
	for call, err := range map[string]error{
		"Add": db.Add("a", 1), "Counter.Add": handle.Add(1), "Publish": db.Publish(t.Context(), one("a")),
		"Total": total, "List": listed, "Watch": watched,
	} {
		if !errors.Is(err, countmill.ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", call, err)
		}
	}
	for path, want := range map[string]int{"/v1/totals?counter=a": 503, "/readyz": 503, "/healthz": 200} {
		if got, text := get(t, server.URL+path); got != want {
			t.Errorf("%s after Close: got %d %s, want %d", path, got, text, want)
		}
	}
}

func get(t testing.TB, url string) (int, string) {
	t.Helper()
	client := &http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	res, err := client.Get(url)
	must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(t, err)
	return res.StatusCode, string(text)
}

// The options are checked together, and before anything is opened.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	_, err := embedded.Open(dir, embedded.WithDedupWindow(time.Minute), embedded.WithMinFree(-5), embedded.WithCloseTimeout(0))
	for _, want := range []string{"WithDedupWindow must be from 1h0m0s to 8784h0m0s, got 1m0s", "WithMinFree must not be negative, got -5", "WithCloseTimeout must be above 0, got 0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	_, both := embedded.Open(dir, embedded.WithTokens("x"), embedded.WithInsecure())
	_, unnamed := embedded.Open("")
	_, missing := embedded.Open(dir, embedded.WithTokens(filepath.Join(dir, "tokens")))
	for want, err := range map[string]error{"give one of them": both, "directory is empty": unnamed, "no such file": missing} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--") {
			t.Errorf("got %v, want %q and no flag", err, want)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
}

// Ids are remembered for the window of the directory.
func TestDedupWindow(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir(), embedded.WithDedupWindow(2*time.Hour), embedded.WithMinFree(0), embedded.WithLogger(slog.New(slog.DiscardHandler)))
	old := countmill.Increment{Counter: "a", Delta: 1, ID: "x", Time: time.Now().Add(-3 * time.Hour)}
	if err := db.Publish(t.Context(), old); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("an increment of before the window: got %v, want ErrInvalid", err)
	}
	old.Time = time.Now().Add(-time.Hour)
	for range 3 {
		must(t, db.Publish(t.Context(), old))
	}
	other := old
	other.Delta = 7
	if err := db.Publish(t.Context(), other); !errors.Is(err, countmill.ErrIDsReused) && !errors.Is(err, countmill.ErrConflict) {
		t.Errorf("the id of another increment: got %v", err)
	}
	wantTotal(t, db, "a", 1)
}

func TestListAndTotals(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	const n = reader.MaxPage + 5 // more than a page
	for i := range n {
		must(t, db.Add(fmt.Sprintf("page:%05d", i), int64(i+1)))
	}
	must(t, db.Add("other", 1))
	must(t, db.Flush(t.Context()))
	var sum int64
	last := ""
	for total, err := range db.List(t.Context(), "page:") {
		must(t, err)
		if total.Counter <= last {
			t.Errorf("%s comes after %s", total.Counter, last)
		}
		sum, last = sum+total.Total, total.Counter
	}
	if want := int64(n * (n + 1) / 2); sum != want {
		t.Errorf("the list sums to %d, want %d", sum, want)
	}
	totals, err := db.Totals(t.Context(), "other", "none", "page:00004", "other")
	must(t, err)
	for i, want := range []int64{1, 0, 5, 1} {
		if totals[i].Total != want || !totals[i].AsOf.Equal(totals[0].AsOf) && totals[i].Exists {
			t.Errorf("total %d is %+v, want %d, of one moment", i, totals[i], want)
		}
	}
	if _, err := db.Totals(t.Context(), "a", ""); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("an empty name: got %v, want ErrInvalid", err)
	}
	if got := db.Stats(); got.Publisher.Increments != n+1 || got.Aggregator.Entries != n+1 || got.Reader.Lists == 0 {
		t.Errorf("got %+v, want %d increments and entries", got, n+1)
	}
}

// A watch shows every resting state, a slow caller the newest one, and it ends with its context.
func TestWatch(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var seen []int64
	for totals, err := range db.Watch(ctx, "a", "b") {
		must(t, err)
		seen = append(seen, totals[0].Total)
		if len(seen) == 3 {
			cancel()
			continue
		}
		for range 5 {
			must(t, db.Publish(t.Context(), one("a")))
		}
	}
	if fmt.Sprint(seen) != "[0 5 10]" {
		t.Errorf("saw %v, want [0 5 10] and the end", seen)
	}
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, err := range db.Watch(ctx, "a", " ") {
		if !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("a bad name: got %v, want ErrInvalid", err)
		}
	}
}

// A watch ends with the DB.
func TestWatchEndsWithTheDB(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var last error
		for _, err := range db.Watch(t.Context(), "a") {
			if last = err; err == nil {
				close(began)
			}
		}
		ended <- last
	}()
	<-began
	must(t, db.Close())
	select {
	case err := <-ended:
		if !errors.Is(err, countmill.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	case <-time.After(patience):
		t.Fatal("the watch goes on")
	}
}

// The handler serves every route below a prefix, names with slashes too.
func TestHandlerBelowAPrefix(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir())
	server := httptest.NewServer(http.StripPrefix("/deep/below", db.Handler()))
	defer server.Close()
	must(t, db.Publish(t.Context(), one("a//b"), one("a"), one("https://x.org/../p")))
	for path, want := range map[string]string{
		"/":                       `<script type="module" src="page/app.js"></script>`,
		"/page/app.js":            `from "./api.js"`,
		"/frame.html":             `src="page/frame.js"`,
		"/page/theme.js":          "matchMedia(",
		"/v1/totals?counter=a//b": `"counter":"a//b","total":1,`,
		"/v1/counters/a%2F%2Fb":   `"counter":"a//b","total":1,`,
		"/v1/counters/https:%2F%2Fx.org%2F..%2Fp":     `"counter":"https://x.org/../p","total":1,`,
		"/v1/counters?prefix=a":                       `"counter":"a","total":1,`,
		"/readyz":                                     `"ready"`,
		"/healthz":                                    `"status"`,
		"/openapi.json":                               `"openapi"`,
		"/metrics":                                    "\ncountmill_increments_total 3\n",
		"/v1/shards?counter=a":                        `"shards":1,`,
		"/metrics/counters?match=a*":                  "countmill_value{counter=\"a\"} 1\n",
		"/v1/dead-letters":                            `"dead_letters":[]`,
		"/v1/totals?counter=a&max_staleness=1h&x=1":   `"field":"x"`,
		"/v1/nothing":                                 `"status":404`,
		"/v1/counters/a%2F%2Fb?max_staleness=0&y=%zz": `"field":"query"`,
	} {
		if status, text := get(t, server.URL+"/deep/below"+path); !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want %s", path, status, text, want)
		}
	}
}

// Without tokens only this machine is answered, also if a request names localhost as its host.
func TestHandlerKeepsOthersOut(t *testing.T) {
	t.Parallel()
	file, secrets := authtest.File(t, auth.Token{Name: "a", Scopes: []auth.Scope{auth.Read}})
	ask := func(h http.Handler, from, host, token string) int {
		r := httptest.NewRequest("GET", "/v1/counters", nil)
		r.RemoteAddr, r.Host = from, host
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	alone, guarded, insecure := open(t, t.TempDir()), open(t, t.TempDir(), embedded.WithTokens(file)), open(t, t.TempDir(), embedded.WithInsecure())
	for _, tc := range []struct {
		db                *embedded.DB
		from, host, token string
		want              int
	}{
		{alone, "127.0.0.1:1", "localhost:8080", "", 200},
		{alone, "[::1]:1", "127.0.0.1", "", 200},
		{alone, "@", "localhost", "", 200}, // a socket of the file system
		{alone, "192.0.2.1:1", "localhost:8080", "", 403},
		{alone, "[fe80::1%eth0]:1", "localhost", "", 403},
		{alone, "127.0.0.1:1", "evil.example", "", 403},
		{guarded, "192.0.2.1:1", "count.example", "", 401},
		{guarded, "127.0.0.1:1", "localhost", "", 401},
		{guarded, "192.0.2.1:1", "count.example", secrets[0], 200},
		{insecure, "192.0.2.1:1", "count.example", "", 200},
	} {
		if got := ask(tc.db.Handler(), tc.from, tc.host, tc.token); got != tc.want {
			t.Errorf("from %s for %s, token %t: got %d, want %d", tc.from, tc.host, tc.token != "", got, tc.want)
		}
	}
}

// A strict registry takes the metrics, beside those of the process, and of two DBs with labels.
func TestCollector(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	for _, name := range []string{"a", "b"} {
		db := open(t, t.TempDir())
		must(t, db.Publish(t.Context(), one("c")))
		must(t, prometheus.WrapRegistererWith(prometheus.Labels{"db": name}, r).Register(db.Collector()))
	}
	families, err := r.Gather()
	must(t, err)
	if len(families) < 50 {
		t.Errorf("got %d metrics only", len(families))
	}
	for _, f := range families {
		if f.GetName() == "countmill_increments_total" && (len(f.Metric) != 2 || f.Metric[0].Counter.GetValue() != 1 || f.Metric[1].Counter.GetValue() != 1) {
			t.Errorf("got %v, want 1 for each", f)
		}
		if name := f.GetName(); !strings.HasPrefix(name, "countmill_") || name == "countmill_build_info" {
			t.Errorf("%s is not countmill's to give", name)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
