package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBackupRestores(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	p := up(t, t.TempDir(), "--backup-root", root)
	env := []string{"COUNTMILL_SERVER=" + p.url}
	cli(t, env, "incr", "a", "41")
	dir := filepath.Join(root, "copy")
	if got := cli(t, env, "backup", "copy"); got.code != 0 || !strings.HasPrefix(got.out, dir+": ") {
		t.Fatalf("backup: got %+v", got)
	}
	cli(t, env, "backup", dir).wantError(t, 1, "cannot take a backup: it is not empty")
	cli(t, env, "backup", "/etc").wantError(t, 1, "it is not below "+root)
	cli(t, env, "incr", "a")
	restored := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(restored, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	again := up(t, restored)
	cli(t, []string{"COUNTMILL_SERVER=" + again.url}, "backup", "copy").wantError(t, 1, "--backup-root DIR or COUNTMILL_BACKUP_ROOT")
	if got := cli(t, nil, "get", "a", "--server", again.url); got.out != "41\n" {
		t.Errorf("restored: got %+v, want 41", got)
	}
}

func TestBackupArguments(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"dir":"x"}`), answer(501, `{"detail":"no pebble: store"}`))
	if got := cli(t, nil, "backup", "copy", "--json", "--server", f.URL); got.out != `{"dir":"x"}` {
		t.Errorf("got %+v", got)
	}
	if want := `{"dir":"copy"}`; f.paths[0] != "/v1/backup" || f.bodies[0] != want {
		t.Errorf("asked %s with %s, want %s", f.paths[0], f.bodies[0], want)
	}
	cli(t, nil, "backup", "/copy", "--server", f.URL).wantError(t, 1, "no pebble: store (HTTP 501)")
	cli(t, nil, "backup").wantError(t, 2, "name one DIR")
	cli(t, nil, "backup", "a", "b").wantError(t, 2, "name one DIR")
	cli(t, nil, "backup", "/copy", "--server", "127.0.0.1:1", "--timeout", "5m").wantError(t, 1, "start one with `countmill up`")
}
