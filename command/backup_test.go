package command

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestBackupRestores(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "made", "backups")
	p := up(t, t.TempDir(), "--backup-root", root)
	env := []string{"COUNTMILL_SERVER=" + p.url}
	try(t, env, "incr", "a", "41")
	if got := try(t, env, "backup"); got.code != 0 || !strings.HasPrefix(got.out, "file://"+filepath.ToSlash(root)+": backup 2") {
		t.Fatalf("backup: got %+v", got)
	}
	try(t, env, "incr", "a")
	for _, to := range []string{"below/it", filepath.Join(root, "below"), "file://" + filepath.ToSlash(root)} {
		if got := try(t, env, "backup", to); got.code != 0 {
			t.Fatalf("backup %s: got %+v", to, got)
		}
	}
	try(t, env, "backup", "/etc").wantError(t, 1, "it is not below file://")
	try(t, env, "backup", "gs://bucket").wantError(t, 1, "it is not below file://")
	list := try(t, nil, "restore", root, "--list")
	lines := strings.Split(strings.TrimSpace(list.out), "\n")
	if list.code != 0 || len(lines) != 4 || !strings.Contains(lines[1], " below/it ") {
		t.Fatalf("restore --list: got %+v, want 4 lines", list)
	}
	first, _, _ := strings.Cut(lines[0], " ")
	for _, tc := range []struct {
		args []string
		want string
	}{{nil, "42\n"}, {[]string{"--at", first}, "41\n"}} {
		dir := filepath.Join(t.TempDir(), "data")
		if got := try(t, nil, append([]string{"restore", root, dir}, tc.args...)...); got.code != 0 || !strings.Contains(got.errOut, "countmill up --data "+dir) {
			t.Fatalf("restore %q: got %+v", tc.args, got)
		}
		again := up(t, dir)
		if got := try(t, nil, "get", "a", "--server", again.url); got.out != tc.want {
			t.Errorf("restored %q: got %+v, want %s", tc.args, got, tc.want)
		}
		try(t, nil, "backup", "--server", again.url).wantError(t, 1, "--backup-root PLACE or COUNTMILL_BACKUP_ROOT")
		try(t, nil, "restore", root, dir).wantError(t, 1, "is not empty")
	}
	try(t, nil, "restore", root, "new", "--at", "2020-01-01T00:00:00Z").wantError(t, 1, "no backup is that old")
}

func TestBackupArguments(t *testing.T) {
	t.Parallel()
	const taken = `{"url":"file:///b","id":"x","began_at":"2026-01-02T03:04:05.000000Z","taken_at":"2026-01-02T03:04:06.000000Z","bytes":12,"sent_bytes":3}`
	f := newFakeServer(t, answer(200, taken), answer(200, taken), answer(501, `{"detail":"no pebble: store"}`))
	if got := try(t, nil, "backup", "copy", "--json", "--server", f.URL); got.out != taken {
		t.Errorf("got %+v", got)
	}
	if want := `{"to":"copy"}`; f.paths[0] != "/v1/backup" || f.bodies[0] != want {
		t.Errorf("asked %s with %s, want %s", f.paths[0], f.bodies[0], want)
	}
	if got := try(t, nil, "backup", "--server", f.URL); got.out != "file:///b: backup x of 12 bytes, 3 of them sent\n" || f.bodies[1] != "{}" {
		t.Errorf("got %+v after %s", got, f.bodies[1])
	}
	try(t, nil, "backup", "/copy", "--server", f.URL).wantError(t, 1, "no pebble: store (HTTP 501)")
	try(t, nil, "backup", "a", "b").wantError(t, 2, "name one place at most")
	try(t, nil, "backup", "/copy", "--server", "127.0.0.1:1", "--timeout", "5m").wantError(t, 1, "start one with `countmill up`")
	try(t, nil, "restore", "a").wantError(t, 2, "name one PLACE and one DIR")
	try(t, nil, "restore", "--list").wantError(t, 2, "name one PLACE")
	try(t, nil, "restore", "s3://bucket/a", "dir").wantError(t, 2, "countmill-backup has gs:// and s3:// too")
	try(t, nil, "restore", t.TempDir(), "dir").wantError(t, 1, "there is no backup")
	try(t, nil, "restore", filepath.Join(t.TempDir(), "no"), "dir").wantError(t, 1, "no such file")
	try(t, nil, "up", "--backup-every", "15m").wantError(t, 2, "--backup-root")
	try(t, nil, "up", "--backup-root", t.TempDir(), "--store", "postgres://h/d").wantError(t, 2, "--backup-root: is for copies of a pebble: store")
	try(t, nil, "up", "--backup-root", "s3://bucket").wantError(t, 2, "unknown scheme")
	try(t, nil, "up", "--backup-root", t.TempDir(), "--backup-keep", "7d").wantError(t, 2, "--backup-every")
	try(t, nil, "up", "--backup-root", t.TempDir(), "--backup-every", "2h", "--backup-keep", "1h").wantError(t, 2, "--backup-keep")
}
