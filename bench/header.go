package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"

	"github.com/countmill/countmill/bench/internal/report"
)

// A header describes the measured systems and the machine.
type header struct {
	report.Head
	Work    string
	Systems []describedSystem

	missing map[string]string // reasons by system
}

type describedSystem struct {
	Name    string
	Version string
	Missing string
	How     string
	Ack     string
}

func newHeader(cfg config, plan []job) *header {
	h := &header{
		Head: report.NewHead(cfg.quick), missing: make(map[string]string),
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
	if err := h.Head.Print(w); err != nil {
		return err
	}
	fmt.Fprintln(w, h.Work)
	for _, s := range h.Systems {
		fmt.Fprintf(w, "\n%s: %s\n", s.Name, cmp.Or(s.Version, "MISSING: "+s.Missing))
		fmt.Fprintf(w, "    run:          %s\n    acknowledged: %s\n", s.How, s.Ack)
	}
	return w.Flush()
}

// list prints the names of systems and loads.
func list(out io.Writer, plan []job) error {
	for _, j := range plan {
		if _, err := fmt.Fprintf(out, "%-9s %s\n", j.load, j.system.Name); err != nil {
			return err
		}
	}
	return nil
}
