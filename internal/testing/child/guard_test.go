package child_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/child"
)

const guardedVariable = "COUNTMILL_TEST_GUARDED"

// patience is how long a guard may take on a busy machine. The guarded processes run for longer.
const patience = 2 * time.Minute

// TestMainOfAGuarded is not a test: it is the process that TestGuard kills.
func TestMainOfAGuarded(t *testing.T) {
	dir := os.Getenv(guardedVariable)
	if dir == "" {
		t.Skip("runs in a process that TestGuard starts")
	}
	sleep := exec.Command("sleep", "600")
	sleep.Stdout = os.Stdout
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := child.GuardProcess(sleep.Process.Pid, filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := child.GuardDirs(filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
	fmt.Println("guarded")
	time.Sleep(10 * time.Minute)
}

// However a program ends, its guarded processes and directories go with it.
func TestGuard(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			guarded(t, s)
		})
	}
}

func guarded(t *testing.T, s os.Signal) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestMainOfAGuarded$", "-test.timeout", "5m")
	cmd.Env = append(os.Environ(), guardedVariable+"="+dir)
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = w, t.Output()
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("guarded\n"))
	_, err = io.ReadFull(out, line)
	_ = cmd.Process.Signal(s)
	_ = cmd.Wait()
	if err != nil || string(line) != "guarded\n" {
		t.Fatalf("the process said %q, error %v", line, err)
	}
	// The pipe ends when both the process and its children have ended.
	if err := out.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Errorf("its child still runs %s after it ended: %v", patience, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		gone(t, filepath.Join(dir, name))
	}
	if _, err := os.Stat(filepath.Join(dir, "d")); err != nil {
		t.Errorf("a directory that nobody guards: %v", err)
	}
}

func gone(t *testing.T, dir string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	t.Errorf("%s is still there", dir)
}

// An ended guard kills nobody.
func TestEnd(t *testing.T) {
	t.Parallel()
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	g, err := child.GuardProcess(sleep.Process.Pid, dir)
	if err != nil {
		t.Fatal(err)
	}
	g.End()
	// A killed process accepts a signal until it is waited for. So the test looks at the signal that
	// ended it.
	if err := sleep.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("the process has ended: %v", err)
	}
	_ = sleep.Wait()
	if s, ok := sleep.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGTERM {
		t.Errorf("the process ended by %v, want by the test's own signal", sleep.ProcessState)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the directory: %v", err)
	}
}
