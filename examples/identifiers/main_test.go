package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
)

// serve runs countmill in this process, and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	a, err := app.New(app.Config{Listen: "127.0.0.1:0", Store: "pebble:" + t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + a.Addr()
}

// The program counts the identifiers of files of Go. It refuses a countmill that has counters of its prefix.
func TestCounts(t *testing.T) {
	t.Parallel()
	server, src := serve(t), t.TempDir()
	for name, text := range map[string]string{
		"a.go":     "package a\nvar _, __spare__, err = f(err, err)",
		"b/b.go":   "package b\nfunc é() { return err }\nvar x \"unterminated",
		"b/c.txt":  "not go",
		"b/d_x.go": strings.Repeat("x y\n", 50),
	} {
		path := filepath.Join(src, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	args := []string{"--server", server, "--source", src, "--batch", "7"}
	if err := run(t.Context(), args, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"increments                111\n", "names                       9\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report %q has no row %q", out.String(), want)
		}
	}
	c, err := newRemote(server)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	if got, err := c.byName(t.Context(), []string{"id:err", "id:x", "id:none"}, 2); err != nil || got["id:err"] != 4 || got["id:x"] != 51 {
		t.Errorf("got %v, %v, want 4 of err and 51 of x", got, err)
	}
	if err := run(t.Context(), args, io.Discard, t.Output()); err == nil || !strings.Contains(err.Error(), "--prefix") {
		t.Errorf("a second time: got error %v, want one that names --prefix", err)
	}
	if err := run(t.Context(), append(args, "--limit", "3", "--prefix", "few:"), io.Discard, t.Output()); err != nil {
		t.Error(err)
	}
	if got, err := c.totals(t.Context(), "few:"); err != nil || len(got) != 3 || got["few:__spare__"] != 1 {
		t.Errorf("the first 3 identifiers: got %v, %v", got, err)
	}
}

func TestFindsDifferences(t *testing.T) {
	t.Parallel()
	want := map[string]int64{"a": 2, "b": 1}
	for name, got := range map[string]map[string]int64{
		"a repeat":        {"id:a": 3, "id:b": 1},
		"a loss":          {"id:a": 2},
		"another counter": {"id:a": 2, "id:b": 1, "id:c": 1},
	} {
		if err := compare("id:", want, got); err == nil || !strings.Contains(err.Error(), "names differ") {
			t.Errorf("%s: got error %v, want differences", name, err)
		}
		if short("id:", want, got) != (name == "a loss") {
			t.Errorf("%s is found to be short, or not", name)
		}
	}
	if err := compare("id:", want, map[string]int64{"id:a": 2, "id:b": 1}); err != nil {
		t.Error(err)
	}
}

// A total above the final sum is found while increments are sent. A refused read is none.
func TestWatcher(t *testing.T) {
	t.Parallel()
	answers := []string{`{"totals":[{"counter":"id:a","total":3}]}`, "", `{"totals":[{"counter":"id:a","total":4}]}`}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answers[0] == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, answers[0])
		answers = answers[1:]
	}))
	defer srv.Close()
	c, err := newRemote(srv.URL, client.WithTries(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	w := newWatcher(c, "id:", map[string]int64{"a": 3})
	err = w.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "id:a: countmill has 4, but the final sum is 3") || w.reads != 3 || w.refused != 1 {
		t.Errorf("got error %v after %d reads, %d refused", err, w.reads, w.refused)
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
