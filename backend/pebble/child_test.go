package pebble

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/countmill/countmill/store"
)

// The tests in this file start this program again as another process.
const childEnv = "COUNTMILL_PEBBLE_TEST_CHILD"

// runChild does the other process's work and returns true there.
func runChild() bool {
	dir := os.Getenv(childEnv + "_DIR")
	switch os.Getenv(childEnv) {
	case "hold":
		holdDir(dir)
	case "fill-log":
		foldUntilFull(dir, false)
	case "fill-rotation":
		foldUntilFull(dir, true)
	case "full-drawn":
		foldOnAFullDisk(dir)
	case "open-full":
		openWhileFull(dir)
	default:
		return false
	}
	return true
}

func child(t *testing.T, task, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+task, childEnv+"_DIR="+dir)
	return cmd
}

func holdDir(dir string) {
	s, err := Open(Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = s.Close()
}

// hold starts another process, which has the directory open until its input ends.
func hold(t *testing.T, dir string) (cmd *exec.Cmd, stdin io.Closer) {
	t.Helper()
	cmd = child(t, "hold", dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "open\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return cmd, stdin
}

func TestOpenRefusesDirectoryOfAnotherProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, stdin := hold(t, dir)
	wantRefused(t, Config{Dir: dir}, "in use by another process")
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Dir: dir})
}

// A killed process that was idle leaves nothing to flush, which Pebble reports as an error. The next
// process must fold nevertheless.
func TestKilledWhileIdle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 3 {
		cmd, _ := hold(t, dir)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		s := open(t, Config{Dir: dir})
		if _, err := s.Check(t.Context()); err != nil {
			t.Errorf("Check: %v", err)
		}
		_ = s.Close()
	}
}

// foldUntilFull folds and prints the number of acknowledged folds. After a while the disk is full: in
// the log itself, or when a new log is made.
func foldUntilFull(dir string, rotate bool) {
	var full atomic.Bool
	files := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		isLog := strings.HasSuffix(op.Path, ".log")
		writes := op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileFlush
		creates := op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite
		if full.Load() && isLog && (rotate && creates || !rotate && writes) {
			return syscall.ENOSPC
		}
		return nil
	}))
	s, err := Open(Config{Dir: dir, FS: files, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		full.Store(i == 20)
		adds := []store.ShardDelta{store.NewShardDelta("a", 0, 1)}
		if rotate && i >= 20 { // too large for the memtable, so Pebble begins a new log
			name := strings.Repeat("x", 500)
			for n := range 100_000 {
				adds = append(adds, store.ShardDelta{Counter: name, Order: uint64(n), Delta: 1})
			}
		}
		if _, err := s.Fold(testContext, &store.Commit{Markers: marker(time.Now()), Adds: adds}); err != nil {
			panic(err)
		}
		fmt.Println(i + 1)
	}
}

// openWhileFull opens a directory whose log must be flushed, on a full disk.
func openWhileFull(dir string) {
	files := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst") {
			return syscall.ENOSPC
		}
		return nil
	}))
	_, err := Open(Config{Dir: dir, FS: files, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	panic(fmt.Sprintf("Open returned %v", err))
}

// A killed process leaves a log that the next one flushes during its opening. If the disk is full then,
// that process exits; it does not wait silently.
func TestOpenOnAFullDiskEndsTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var acked bytes.Buffer
	filled := child(t, "fill-log", dir)
	filled.Stdout = &acked
	_ = filled.Run() // ends with status 1: TestFullDiskEndsTheProcess
	var stderr bytes.Buffer
	cmd := child(t, "open-full", dir)
	cmd.Stderr = &stderr
	err := cmd.Run()
	if cmd.ProcessState.ExitCode() != 1 || strings.Count(stderr.String(), "\n") != 1 ||
		!strings.Contains(stderr.String(), "free space") || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("got %v, want exit status 1 and one line that names the cause and what to do; it said:\n%s", err, stderr.String())
	}
	if got, want := total(t, open(t, Config{Dir: dir}), "a"), int64(strings.Count(acked.String(), "\n")); got < want {
		t.Errorf("with room again: got %d, but %d were acknowledged", got, want)
	}
}

// A full disk ends the process with status 1 and one line with the remedy. Everything acknowledged is
// still there after a restart.
func TestFullDiskEndsTheProcess(t *testing.T) {
	t.Parallel()
	for _, task := range []string{"fill-log", "fill-rotation"} {
		t.Run(task, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := child(t, task, dir)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("got %v, want exit status 1; it said:\n%s", err, stderr.String())
			}
			if lines := strings.Count(stderr.String(), "\n"); lines != 1 || !strings.Contains(stderr.String(), "free space") ||
				!strings.Contains(stderr.String(), dir) || !strings.Contains(stderr.String(), "no space left") {
				t.Errorf("want one line that names the directory, the cause and what to do, got:\n%s", stderr.String())
			}
			acked := strings.Fields(stdout.String())
			want, err := strconv.ParseInt(acked[len(acked)-1], 10, 64)
			if err != nil || want < 20 {
				t.Fatalf("the other process acknowledged %v folds, %v", acked, err)
			}
			if got := total(t, open(t, Config{Dir: dir}), "a"); got < want {
				t.Errorf("after a restart: got %d, but %d were acknowledged", got, want)
			}
		})
	}
}
