package report

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Machine describes the machine of this process, as far as /proc does.
func Machine() string {
	kernel, _ := exec.Command("uname", "-sr").Output()
	return fmt.Sprintf("%d CPUs, %s, %s of memory, %s, load %s", runtime.NumCPU(),
		cmp.Or(field("/proc/cpuinfo", "model name"), runtime.GOARCH), cmp.Or(field("/proc/meminfo", "MemTotal"), "?"),
		cmp.Or(strings.TrimSpace(string(kernel)), runtime.GOOS), cmp.Or(loadAverage(), "?"))
}

func field(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// Revision is the commit of the working tree.
func Revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
