package server

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"syscall"

	"github.com/countmill/countmill/internal/testing/child"
)

// newGuard kills a process group when this process has ended in any way.
func newGuard(group int) (*child.Guard, error) { return child.GuardProcess(-group) }

// Output runs a command to its end and returns its standard output. The command ends with ctx, and with
// this process. An error contains the command's other output.
func Output(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	g, err := newGuard(cmd.Process.Pid)
	if err != nil {
		kill()
		return nil, fmt.Errorf("%w: %w", err, cmd.Wait())
	}
	// kill may come a moment after the end: no system reuses a number that soon.
	stop := context.AfterFunc(ctx, kill)
	err = cmd.Wait()
	stop()
	g.End()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s%s", cmd.Path, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
