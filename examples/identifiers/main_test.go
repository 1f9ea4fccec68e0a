package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/countmill/countmill/client"
)

// A fake is a countmill with chosen faults. Of every four requests it accepts one, refuses one before
// counting it, and counts two without an answer.
type fake struct {
	forgetsKeys bool // counts a repeat again
	loses       bool // accepts without counting, now and then

	mu     sync.Mutex
	posts  int
	keys   map[string]bool
	totals map[string]int64
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/increments":
		f.increments(w, r)
	case "GET /v1/counters":
		f.list(w, r)
	case "POST /v1/totals":
		f.named(w, r)
	case "GET /metrics":
		for _, m := range metrics {
			fmt.Fprintf(w, "# HELP %s x\n%s{kind=\"a b\"} 40\n%s{kind=\"c\"} 2\n", m.name, m.name, m.name)
		}
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) increments(w http.ResponseWriter, r *http.Request) {
	f.posts++
	if f.posts%4 == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	n := f.count(r)
	switch f.posts % 4 {
	case 2:
		panic(http.ErrAbortHandler)
	case 3:
		w.WriteHeader(http.StatusGatewayTimeout)
	default:
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"accepted":%d}`, n)
	}
}

func (f *fake) count(r *http.Request) int {
	key, n := r.Header.Get("Idempotency-Key"), 0
	for dec := json.NewDecoder(r.Body); ; n++ {
		var inc struct{ Counter string }
		if err := dec.Decode(&inc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			panic(err)
		}
		if (f.forgetsKeys || !f.keys[key]) && !(f.loses && f.posts%3 == 0) {
			f.totals[inc.Counter]++
		}
	}
	f.keys[key] = true
	return n
}

// list serves pages of two.
func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	var rows []string
	next := ""
	for _, name := range slices.Sorted(maps.Keys(f.totals)) {
		if name <= r.FormValue("page_token") || !strings.HasPrefix(name, r.FormValue("prefix")) {
			continue
		}
		if len(rows) == 2 {
			next = strings.Split(strings.Split(rows[1], `"`)[3], `"`)[0]
			break
		}
		rows = append(rows, fmt.Sprintf(`{"counter":%q,"total":%d}`, name, f.totals[name]))
	}
	fmt.Fprintf(w, `{"totals":[%s],"next_page_token":%q}`, strings.Join(rows, ","), next)
}

// named refuses one of two requests, and every request that POST /v1/totals refuses.
func (f *fake) named(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Counters []string }
	f.posts++
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Counters) > 1000 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if f.posts%2 == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var rows []client.Total
	for _, name := range asked.Counters {
		n, ok := f.totals[name]
		rows = append(rows, client.Total{Counter: name, Total: n, Exists: ok})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"totals": rows})
}

func open(t *testing.T, base string, options ...client.Option) *remote {
	t.Helper()
	c, err := newRemote(base, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func runAgainst(t *testing.T, f *fake, args ...string) (string, error) {
	t.Helper()
	f.keys, f.totals = make(map[string]bool), make(map[string]int64)
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	src := t.TempDir()
	for name, text := range map[string]string{
		"a.go":     "package a\nvar _, __spare__, err = f(err, err)",
		"b/b.go":   "package b\nfunc é() { return err }\nvar x \"unterminated",
		"b/c.txt":  "not go",
		"b/d_x.go": strings.Repeat("x y\n", 50),
	} {
		path := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	args = append([]string{"--server", srv.URL, "--source", src, "--batch", "7"}, args...)
	err := run(t.Context(), args, &out, t.Output())
	return out.String(), err
}

func TestAgreesWithAServerThatLosesAnswers(t *testing.T) {
	t.Parallel()
	f := &fake{}
	out, err := runAgainst(t, f)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.totals["id:err"]; got != 4 {
		t.Errorf("err was sent %d times, want 4", got)
	}
	for _, want := range []string{"increments                111\n", "names                       9\n", "commits                    42\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("report %q has no row %q", out, want)
		}
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	f := &fake{}
	if _, err := runAgainst(t, f, "--limit", "3"); err != nil {
		t.Fatal(err)
	}
	if got, want := f.totals, (map[string]int64{"id:a": 1, "id:_": 1, "id:__spare__": 1}); !maps.Equal(got, want) {
		t.Errorf("first 3 identifiers: got %v, want %v", got, want)
	}
}

func TestFindsDifferences(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]*fake{
		"counts repeats again": {forgetsKeys: true},
		"loses increments":     {loses: true},
	} {
		if _, err := runAgainst(t, f); err == nil || !strings.Contains(err.Error(), "names differ") {
			t.Errorf("a server that %s: got error %v, want differences", name, err)
		}
	}
	extra := map[string]int64{"id:a": 1, "id:b": 1}
	if err := compare("id:", map[string]int64{"a": 1}, extra); err == nil || !strings.Contains(err.Error(), "id:b") {
		t.Errorf("a counter too many: got error %v, want one that names id:b", err)
	}
}

// With separate roles, totals are read by name.
func TestReadsByName(t *testing.T) {
	t.Parallel()
	f := &fake{totals: make(map[string]int64)}
	srv := httptest.NewServer(f)
	defer srv.Close()
	want, counters := make(map[string]int64), []string{}
	for i := range 2345 {
		name := fmt.Sprint("n", i)
		want[name], f.totals["id:"+name], counters = int64(i+1), int64(i+1), append(counters, "id:"+name)
	}
	c := open(t, srv.URL)
	got, err := c.byName(t.Context(), append(counters, "id:none"), 2)
	if err != nil || !maps.Equal(got, f.totals) {
		t.Errorf("got %d totals and error %v, want the %d there are", len(got), err, len(f.totals))
	}
	if short("id:", want, got) {
		t.Error("equal totals are found to be short")
	}
	if got["id:n7"]--; !short("id:", want, got) {
		t.Error("a total that is one below is not found to be short")
	}
}

// A total above the final sum is found while increments are sent.
func TestWatcher(t *testing.T) {
	t.Parallel()
	f := &fake{totals: map[string]int64{"id:a": 3, "id:b": 2}}
	srv := httptest.NewServer(f)
	defer srv.Close()
	c := open(t, srv.URL, client.WithTries(1))
	w := newWatcher(c, "id:", map[string]int64{"a": 3, "b": 2, "c": 1})
	for range 4 {
		if err := w.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if w.reads != 4 || w.refused != 2 {
		t.Errorf("%d reads and %d refused, want 4 and 2", w.reads, w.refused)
	}
	f.mu.Lock()
	f.totals["id:b"] = 3
	f.mu.Unlock()
	if err := w.run(t.Context()); err == nil || !strings.Contains(err.Error(), "id:b: countmill has 3, but the final sum is 2") {
		t.Errorf("got error %v, want one that names id:b", err)
	}
}

func TestRefusesCountersThatAreThereAlready(t *testing.T) {
	t.Parallel()
	f := &fake{totals: map[string]int64{"id:a": 1}}
	srv := httptest.NewServer(f)
	defer srv.Close()
	err := run(t.Context(), []string{"--server", srv.URL, "--limit", "1"}, io.Discard, t.Output())
	if err == nil || !strings.Contains(err.Error(), "--prefix") {
		t.Errorf("got error %v, want one that names --prefix", err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--nope"}, {"x"}, {"--kill", "1"}, {"--binary", "x"}, {"--batch", "0"}, {"--bus", "x"}, {"--aggregators", "0"}} {
		if err := run(t.Context(), args, io.Discard, t.Output()); !errors.Is(err, errUsage) {
			t.Errorf("%q: got error %v, want a usage error", args, err)
		}
	}
}
