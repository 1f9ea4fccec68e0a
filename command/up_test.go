package command

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The verbs against a real server: names that paths like to clean, negative deltas, ids.
func TestVerbs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := up(t, dir)
	if !strings.HasPrefix(p.line, "countmill up listens on http://127.0.0.1:") || !strings.Contains(p.line, " and keeps counters in "+dir) {
		t.Errorf("it printed %q, want its address and %s", p.line, dir)
	}
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
	want("3\ta/../b\n1\ta//b\n4\ta/b\n", "ls", "a/")
	want("0\t4\n", "shards", "a/b")
	if got := try(t, env, "verify"); got.code != 0 || got.errOut != "9 shards checked\n" {
		t.Errorf("verify: %+v", got)
	}
	for _, args := range [][]string{{"dead", "list"}, {"dead", "replay", "--all", "--yes"}} {
		if got := try(t, env, args...); got.code != 0 || got.out != "" {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	if err := p.signal(t, syscall.SIGINT); err != nil {
		t.Errorf("Ctrl-C ended it with %v, want exit 0:\n%s", err, p.stderr)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBallastPutsCollectionsOff(t *testing.T) {
	goal := func() uint64 {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	held := ballast((&host{}).lookup)
	if with := goal(); with < 2*ballastBytes {
		t.Errorf("garbage is collected at a heap of %d bytes, want twice %d at least", with, ballastBytes)
	}
	runtime.KeepAlive(held)
	for _, setting := range []string{"GOGC=50", "GOMEMLIMIT=100MiB"} {
		if held := ballast((&host{environ: []string{setting}}).lookup); held != nil {
			t.Errorf("with %s the ballast has %d bytes, want none", setting, len(held))
		}
	}
}

// SIGTERM ends a process that waits for a server while it starts: within 2 s on a machine
// that has nothing else to do, and long before the server would be given up.
func TestSIGTERMEndsAStart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and runs the command")
	}
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		variable string
		args     []string
	}{
		"reader":     {"DATASTORE_EMULATOR_HOST", []string{"reader", "--store", "datastore://p"}},
		"publisher":  {"PUBSUB_EMULATOR_HOST", []string{"publisher", "--bus", "pubsub://p/topic"}},
		"aggregator": {"DATASTORE_EMULATOR_HOST", []string{"aggregator", "--bus", "pubsub://p/topic?subscription=sub", "--store", "datastore://p"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent, err := net.Listen("tcp", "127.0.0.1:0") // a server that never answers
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			var said bytes.Buffer
			cmd := exec.Command(binary, append(tc.args, "--listen", "127.0.0.1:0")...)
			cmd.Env = append(os.Environ(), tc.variable+"="+silent.Addr().String())
			cmd.Stdout, cmd.Stderr = &said, &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill() })
			_ = silent.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
			conn, err := silent.Accept()
			if err != nil {
				t.Fatalf("it asked no server: %v", err)
			}
			defer conn.Close()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			began, exited := time.Now(), make(chan error, 1)
			go func() { exited <- cmd.Wait() }()
			select {
			case err := <-exited:
				took := time.Since(began)
				t.Logf("ended %s after SIGTERM", took)
				if err != nil || took > 8*time.Second {
					t.Errorf("ended %s after SIGTERM with %v, want exit 0 at once:\n%s", took, err, said.String())
				}
			case <-time.After(patience):
				t.Error("it goes on after SIGTERM")
			}
		})
	}
}
