package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// A header says what was measured, and on what.
type header struct {
	When     time.Time         `json:"when"`
	Command  string            `json:"command"`
	Machine  string            `json:"machine"`
	Go       string            `json:"go"`
	Revision string            `json:"revision"`
	Quick    bool              `json:"quick"`
	Work     string            `json:"work"`
	Systems  []describedSystem `json:"systems"`

	missing map[string]string // by system, why
}

type describedSystem struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Missing string `json:"missing,omitempty"`
	How     string `json:"how"`
	Ack     string `json:"acknowledged_means"`
}

func newHeader(cfg config, plan []job) *header {
	h := &header{
		When: time.Now().UTC().Truncate(time.Second), Command: strings.Join(os.Args, " "), Machine: machine(), Go: runtime.Version(), Revision: revision(),
		Quick: cfg.quick, missing: make(map[string]string),
		Work: fmt.Sprintf("%d rounds, interleaved; each measurement at least %s and %d increments, at most %s, on a system of its own that is empty at its start; names of 20 bytes; Zipf and uniform over %d counters, distinct %d",
			cfg.rounds, cfg.goal.Least, cfg.goal.Increments, cfg.goal.Most, cfg.names, cfg.distinct),
	}
	seen := make(map[string]bool)
	for _, j := range plan {
		s := j.system
		if seen[s.Name] {
			continue
		}
		seen[s.Name] = true
		d := describedSystem{Name: s.Name, How: s.How, Ack: s.Ack}
		var err error
		if d.Version, err = s.Version(); err != nil {
			d.Missing = err.Error()
			h.missing[s.Name] = d.Missing
		}
		h.Systems = append(h.Systems, d)
	}
	return h
}

func (h *header) print(out io.Writer) error {
	w := bufio.NewWriter(out)
	if h.Quick {
		fmt.Fprintf(w, "A QUICK RUN: it shows that everything works. Its figures are of no use.\n\n")
	}
	fmt.Fprintf(w, "%s\n%s\n%s, revision %s\n%s\n%s\n", h.When.Format(time.RFC3339), h.Machine, h.Go, h.Revision, h.Command, h.Work)
	for _, s := range h.Systems {
		fmt.Fprintf(w, "\n%s: %s\n", s.Name, cmp.Or(s.Version, "MISSING: "+s.Missing))
		fmt.Fprintf(w, "    run:          %s\n    acknowledged: %s\n", s.How, s.Ack)
	}
	return w.Flush()
}

// list prints names.
func list(out io.Writer, plan []job) error {
	for _, j := range plan {
		if _, err := fmt.Fprintf(out, "%-9s %s\n", j.load, j.system.Name); err != nil {
			return err
		}
	}
	return nil
}

// machine is what this process runs on, as far as /proc tells.
func machine() string {
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

// revision is the commit of the tree that this is run in.
func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
