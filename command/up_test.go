package command

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

func TestUpPrintsWhereItIs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := up(t, dir)
	if !strings.HasPrefix(p.line, "countmill up listens on http://127.0.0.1:") || !strings.Contains(p.line, " and keeps counters in "+dir) {
		t.Errorf("it printed %q, want its address and %s", p.line, dir)
	}
	if err := p.signal(t, syscall.SIGINT); err != nil {
		t.Errorf("Ctrl-C ended it with %v, want exit 0:\n%s", err, p.stderr)
	}
}

// The verbs against a real server: names that paths like to clean, negative deltas, ids.
func TestVerbs(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	env := []string{"COUNTMILL_SERVER=" + p.url}
	want := func(out string, args ...string) {
		t.Helper()
		if got := try(t, env, args...); got != (result{0, out, ""}) {
			t.Errorf("%q: got %+v, want %q", args, got, out)
		}
	}
	for i, name := range []string{"a//b", "https://x.org/p", "a/../b", "a/b", "- x", "ünï cødé"} {
		n := fmt.Sprint(i + 1)
		want(fmt.Sprintf("%s +%s\n", name, n), "incr", "--", name, n)
		want(n+"\n", "get", "--", name)
	}
	want("3\ta/../b\n1\ta//b\n", "get", "a/../b", "a//b")
	want("stock -3\n", "incr", "stock", "-3")
	want("-3\n", "get", "stock")
	for range 2 {
		want("order +1\n", "incr", "order", "--id", "o1")
		want("key +2\n", "incr", "key", "2", "--key", "k1")
	}
	if got := try(t, env, "get", "order", "key", "nobody"); got != (result{0, "1\torder\n2\tkey\n0\tnobody\n", "countmill: no counter is named \"nobody\"\n"}) {
		t.Errorf("get order key nobody: got %+v", got)
	}
	if got := try(t, env, "get", "order", "--json"); !strings.Contains(got.out, `"counter":"order","total":1,`) {
		t.Errorf("get --json: got %+v", got)
	}
	try(t, env, "incr", "key", "7", "--key", "k1").wantError(t, 1, "not counted: ")
	try(t, env, "incr", "a", "--time", "2001-01-01T00:00:00Z").wantError(t, 1, "time is beyond the deduplication window (limit: ")
	want("2\n", "get", "key")
}

func TestUpSaysWhatIsWrongWithTheDirectory(t *testing.T) {
	t.Parallel()
	inUse := t.TempDir()
	up(t, inUse)
	foreign, other, newer := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, filepath.Join(foreign, "holiday.jpg"), "")
	putKey(t, other, pebbledb.DefaultMerger, "somebody", "else")
	p := up(t, newer)
	if err := p.signal(t, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	putKey(t, newer, &pebbledb.Merger{Name: "countmill.sum.v1"}, "\x00countmill", `{"format":99}`)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	for name, test := range map[string]struct{ dir, want string }{
		"locked":        {inUse, "is in use by another process"},
		"foreign files": {foreign, `contains "holiday.jpg", which is not a file of countmill`},
		"foreign keys":  {other, "is a Pebble database of another program"},
		"a file":        {file, "a file has that name"},
		"below a file":  {filepath.Join(file, "x"), "a file has that name"},
		"newer":         {newer, "was written by a newer version of countmill"},
		"not writable":  {"/proc/countmill", "data directory /proc/countmill"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try(t, nil, "up", "--listen", "127.0.0.1:0", "--data", test.dir).wantError(t, 1, test.want)
		})
	}
}

func TestUpOnAUsedPort(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	addr := ln.Addr().String()
	try(t, nil, "up", "--listen", addr, "--data", t.TempDir()).
		wantError(t, 1, "--listen "+addr+": the address is in use; is another countmill running?")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func putKey(t *testing.T, dir string, merger *pebbledb.Merger, key, value string) {
	t.Helper()
	db, err := pebbledb.Open(dir, &pebbledb.Options{Merger: merger, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Set([]byte(key), []byte(value), pebbledb.Sync); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}
