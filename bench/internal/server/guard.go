package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// A guard kills a process group when this process has ended in any way: SIGKILL and a panic run no
// cleanup. It is a shell that waits for the end of a pipe. Only this process has the pipe's other end.
type guard struct {
	cmd  *exec.Cmd
	hold io.Closer
}

func newGuard(group int) (*guard, error) {
	return runGuard(`kill -9 "-$1" 2>/dev/null`, strconv.Itoa(group))
}

func runGuard(then, arg string) (*guard, error) {
	// A key that interrupts this process also interrupts the guard, which must stay.
	cmd := exec.Command("sh", "-c", "trap '' INT TERM HUP; read -r _; "+then, "sh", arg)
	hold, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return &guard{cmd, hold}, nil
}

// end ends the guard, which then does nothing. Call it before another process can get the group's
// number.
func (g *guard) end() {
	_ = g.cmd.Process.Kill()
	_ = g.hold.Close()
	_ = g.cmd.Wait()
}

// GuardDir removes a directory when this process has ended in any way, unless end was called before.
// The programs that use the directory have guards of their own and end a moment before.
func GuardDir(dir string) (end func(), err error) {
	g, err := runGuard(`sleep 2; rm -rf "$1"`, dir)
	if err != nil {
		return nil, err
	}
	return g.end, nil
}

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
	g.end()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s%s", cmd.Path, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
