//go:build unix

package archtest

import (
	"os/exec"
	"syscall"
)

// inGroup makes cmd, before it is started, the head of a process group. It returns a function that
// interrupts the whole group.
func inGroup(cmd *exec.Cmd) (interrupt func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
}
