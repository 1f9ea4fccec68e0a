package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// PID is the server's process number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the server as kill -9 does.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.exited
	p.guard.End()
}

// Memory returns a figure of /proc about the server in bytes: VmRSS for its present memory, VmHWM for
// the most. It is 0 if that is unknown.
func (p *Process) Memory(line string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	for l := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(l, line+":"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// CPU is the processor's time that the server has used, in steps of 10 ms. It is 0 if that is unknown.
func (p *Process) CPU() time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	_, rest, _ := strings.Cut(string(text), ") ") // its name may contain spaces
	var used time.Duration
	if fields := strings.Fields(rest); len(fields) > 12 {
		for _, ticks := range fields[11:13] { // utime, stime
			n, _ := strconv.ParseInt(ticks, 10, 64)
			used += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return used
}

// DirSize is the bytes of the files below a directory whose names count. Files may disappear meanwhile.
func DirSize(dir string, counts func(name string) bool) (int64, error) {
	var bytes int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && counts(d.Name()) {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return bytes, err
}

// Tables is the bytes of the tables of a directory of countmill. Its logs are rewritten all the time, and reserved in advance.
func Tables(dir string) (int64, error) {
	return DirSize(dir, func(name string) bool { return strings.HasSuffix(name, ".sst") })
}
