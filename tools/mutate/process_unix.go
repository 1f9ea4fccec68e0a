//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// keptOutput is the most output of a command that is kept: a mutant with an endless loop may print a
// lot.
const keptOutput = 256 << 10

// runBounded runs a command in a process group of its own and returns its output. When ctx ends it
// kills the whole group; when the command has ended it kills the rest of the group. A process cannot
// allocate more than memoryMiB, which ends a Go program.
func runBounded(ctx context.Context, dir string, memoryMiB int, args ...string) (string, error) {
	// A shell sets the limit, because a Go program can only limit itself. It limits data and not
	// address space: Go reserves far more of that than it uses.
	limited := append([]string{"-c", `ulimit -d "$0" && exec "$@"`, strconv.Itoa(memoryMiB << 10)}, args...)
	cmd := exec.CommandContext(ctx, "sh", limited...)
	cmd.Dir = dir
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	if err := cmd.Start(); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), errors.Join(err, killGroup(cmd.Process.Pid))
}

// killGroup kills every process of a group that may be empty.
func killGroup(pgid int) error {
	if err := syscall.Kill(-pgid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// A tail keeps the end of its input.
type tail struct{ bytes.Buffer }

func (t *tail) Write(b []byte) (int, error) {
	t.Buffer.Write(b)
	if over := t.Len() - keptOutput; over > 0 {
		t.Next(over)
	}
	return len(b), nil
}
