package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBackupRestores(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	env := []string{"COUNTMILL_SERVER=" + p.url}
	cli(t, env, "incr", "a", "41")
	dir := filepath.Join(t.TempDir(), "copy")
	if got := cli(t, env, "backup", dir); got.code != 0 || !strings.HasPrefix(got.out, dir) {
		t.Fatalf("backup: got %+v", got)
	}
	cli(t, env, "backup", dir).wantError(t, 1, "cannot take a backup: it holds ")
	cli(t, env, "incr", "a")
	again := up(t, dir)
	if got := cli(t, nil, "get", "a", "--server", again.url); got.out != "41\n" {
		t.Errorf("restored: got %+v, want 41", got)
	}
}

func TestBackupArguments(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"dir":"x"}`), answer(501, `{"detail":"no pebble: store"}`))
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// The fake is on this machine, so a relative directory is one of ours.
	if got := cli(t, nil, "backup", "copy", "--json", "--server", f.URL); got.out != `{"dir":"x"}` {
		t.Errorf("got %+v", got)
	}
	if want := `{"dir":"` + filepath.Join(here, "copy") + `"}`; f.paths[0] != "/v1/backup" || f.bodies[0] != want {
		t.Errorf("asked %s with %s, want %s", f.paths[0], f.bodies[0], want)
	}
	cli(t, nil, "backup", "/copy", "--server", f.URL).wantError(t, 1, "no pebble: store (HTTP 501)")
	cli(t, nil, "backup").wantError(t, 2, "name one DIR")
	cli(t, nil, "backup", "a", "b").wantError(t, 2, "name one DIR")
	cli(t, nil, "backup", "copy", "--server", "http://192.0.2.1:8080").wantError(t, 2, "must begin with /")
	cli(t, nil, "backup", "/copy", "--server", "127.0.0.1:1", "--timeout", "5m").wantError(t, 1, "start one with `countmill up`")
}
