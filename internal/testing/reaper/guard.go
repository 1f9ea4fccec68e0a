// Package reaper ends what a program has started when the program itself ends in a way that
// runs no cleanup: SIGKILL, Ctrl-C, a panic, a test's time-out.
package reaper

import (
	"io"
	"os/exec"
	"strconv"
)

// A Guard is a shell that waits for the end of a pipe whose other end only this process
// has, then kills a process and removes directories.
type Guard struct {
	cmd  *exec.Cmd
	hold io.Closer
}

// Process guards a process by its number, and directories that only it writes to.
func Process(pid int, dirs ...string) (*Guard, error) { return start(strconv.Itoa(pid), dirs) }

// Dirs guards directories alone.
func Dirs(dirs ...string) (*Guard, error) { return start("", dirs) }

func start(pid string, dirs []string) (*Guard, error) {
	// A key that interrupts this process goes to the guard as well, which must stay.
	const script = `trap '' INT QUIT TERM HUP; cat >/dev/null; [ -z "$1" ] || kill -9 "$1" 2>/dev/null; shift; rm -rf -- "$@"`
	cmd := exec.Command("sh", append([]string{"-c", script, "sh", pid}, dirs...)...)
	hold, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	return &Guard{cmd, hold}, nil
}

// End ends the guard and leaves what it guarded. Call it before the number of the process
// may be another's.
func (g *Guard) End() {
	_ = g.cmd.Process.Kill()
	_ = g.hold.Close() // cat, which the shell started, ends by this
	_ = g.cmd.Wait()
}
