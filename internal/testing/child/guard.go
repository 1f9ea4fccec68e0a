// Package child is for programs that a test starts: it keeps a port for them, and ends them when the
// test's own process ends.
package child

import (
	"io"
	"os/exec"
	"strconv"
)

// A Guard ends a child process, and removes directories, when this program ends without cleanup: by
// SIGKILL, Ctrl-C, a panic, or a test's time-out. It is a shell that waits for the end of a pipe. Only
// this process has the other end. When the pipe ends, the shell kills the child and removes the
// directories, again after a while if another process with a guard still writes there.
type Guard struct {
	cmd  *exec.Cmd
	hold io.Closer
}

// GuardProcess guards a process by its number, or a process group by its negative number, and directories
// that only that process writes to.
func GuardProcess(pid int, dirs ...string) (*Guard, error) { return start(strconv.Itoa(pid), dirs) }

// GuardDirs guards directories alone.
func GuardDirs(dirs ...string) (*Guard, error) { return start("", dirs) }

func start(pid string, dirs []string) (*Guard, error) {
	// A key that interrupts this process also interrupts the guard, which must stay.
	const script = `trap '' INT QUIT TERM HUP; cat >/dev/null; [ -z "$1" ] || kill -9 "$1" 2>/dev/null; shift; rm -rf -- "$@" || { sleep 2; rm -rf -- "$@"; }`
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

// End ends the guard; it kills and removes nothing. Call it before another process can get the number.
func (g *Guard) End() {
	_ = g.cmd.Process.Kill()
	_ = g.hold.Close() // ends cat, which the shell started
	_ = g.cmd.Wait()
}
