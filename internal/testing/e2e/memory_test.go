package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// A memory is a process's memory in bytes, and the number of its open files.
type memory struct {
	now, most int
	files     int
}

// memoryOf reads Linux's figures of a process.
func memoryOf(pid int) (m memory, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m, fmt.Errorf("no memory of a process to be read on this system: %w", err)
	}
	for name, to := range map[string]*int{"VmRSS": &m.now, "VmHWM": &m.most} {
		_, rest, _ := bytes.Cut(text, []byte("\n"+name+":"))
		value, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" kB\n"))
		kib, err := strconv.Atoi(string(value))
		if err != nil {
			return m, fmt.Errorf("%s of process %d: %w", name, pid, err)
		}
		*to = kib << 10
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	m.files = len(files)
	return m, err
}

// watchMemory watches a process until the returned function is called, which returns the most open
// files so far. Linux itself records the most memory.
func watchMemory(pid int) (most func() memory) {
	stop, result := make(chan struct{}), make(chan memory)
	go func() {
		var most memory
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			if m, err := memoryOf(pid); err == nil {
				m.files = max(m.files, most.files)
				most = m
			}
			select {
			case <-stop:
				result <- most
				return
			case <-tick.C:
			}
		}
	}()
	return func() memory { close(stop); return <-result }
}

// openFiles returns the limit of open files of a process. Go has raised it to the hard limit.
func openFiles() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0
	}
	return int(min(files.Cur, 1<<30))
}
