package main

import (
	"io"
	"os/exec"
	"strconv"
)

// A guard kills a process when this one has ended in any way: SIGKILL, a panic and a
// test's time-out run no cleanup. It is a shell that waits for the end of a pipe whose
// other end only this process has.
type guard struct {
	cmd  *exec.Cmd
	hold io.Closer
}

func newGuard(pid int) (*guard, error) {
	// A key that interrupts this process goes to the guard as well, which must stay.
	cmd := exec.Command("sh", "-c", `trap '' INT TERM HUP; cat >/dev/null; kill -9 "$1" 2>/dev/null`, "sh", strconv.Itoa(pid))
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &guard{cmd, hold}, cmd.Start()
}

// end ends the guard. Call it before the number of the guarded process may be another's.
func (g *guard) end() {
	_ = g.cmd.Process.Kill()
	_ = g.hold.Close() // cat, which the shell started, ends by this
	_ = g.cmd.Wait()
}
