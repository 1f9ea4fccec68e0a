package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/countmill/countmill/bench/internal/report"
)

// printHeader describes the work and each system of the plan once. It returns, by system, why one cannot be measured.
func printHeader(out io.Writer, cfg config, plan []job) (missing map[string]string, err error) {
	w := bufio.NewWriter(out)
	if err := report.Head(w, cfg.Quick); err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "%d rounds, interleaved; each measurement at least %s and %d increments, at most %s, on a system of its own that is empty at its start; names of 20 bytes; Zipf and uniform over %d counters, distinct %d\n",
		cfg.rounds, cfg.goal.Least, cfg.goal.Increments, cfg.goal.Most, cfg.names, cfg.distinct)
	missing = make(map[string]string)
	seen := make(map[string]bool)
	for _, j := range plan {
		s := j.system
		if seen[s.Name] {
			continue
		}
		seen[s.Name] = true
		version, err := s.Version()
		if err != nil {
			version, missing[s.Name] = "", err.Error()
		}
		fmt.Fprintf(w, "\n%s: %s\n", s.Name, cmp.Or(version, "MISSING: "+missing[s.Name]))
		fmt.Fprintf(w, "    run:          %s\n    acknowledged: %s\n", s.How, s.Ack)
	}
	return missing, w.Flush()
}

// list prints the names of systems and loads.
func list(out io.Writer, plan []job) error {
	var text strings.Builder
	for _, j := range plan {
		fmt.Fprintf(&text, "%-9s %s\n", j.load, j.system.Name)
	}
	_, err := io.WriteString(out, text.String())
	return err
}
