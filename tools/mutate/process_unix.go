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

// keptOutput is how much of a command's output is kept: mutants that loop may print.
const keptOutput = 256 << 10

// runBounded runs a command in a process group of its own and returns what it printed. When
// ctx ends the whole group is killed; whatever the command left behind is killed when it is
// over. A process that wants more than memoryMiB of its own memory is refused it, which ends
// a Go program.
func runBounded(ctx context.Context, dir string, memoryMiB int, args ...string) (string, error) {
	// The limit is set by a shell because a Go program can only limit itself. It is the limit
	// on data: Go reserves address space far beyond what it uses.
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

// killGroup kills every process of a group that may have none left.
func killGroup(pgid int) error {
	if err := syscall.Kill(-pgid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// A tail keeps the end of what is written to it.
type tail struct{ bytes.Buffer }

func (t *tail) Write(b []byte) (int, error) {
	t.Buffer.Write(b)
	if over := t.Len() - keptOutput; over > 0 {
		t.Next(over)
	}
	return len(b), nil
}
