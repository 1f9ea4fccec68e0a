package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/countmill/countmill/bench/internal/report"
)

// order returns which countmill a round measures, in which order: each is first in half of the rounds.
func (m *measurer) order(round int) []bool {
	switch {
	case m.cfg.before == "":
		return []bool{false}
	case round%2 == 0:
		return []bool{false, true}
	}
	return []bool{true, false}
}

// printPairs prints each system's speed as a multiple of its speed with the countmill of -before.
func printPairs(out io.Writer, plan []job, results []result) error {
	if !slices.ContainsFunc(results, func(r result) bool { return r.Before }) {
		return nil
	}
	text := "\n## times as fast as before\n\n| load | system | median of pairs | 95 % interval | pairs |\n| --- | --- | ---: | ---: | ---: |\n"
	for _, j := range plan {
		var before []result
		for _, r := range results {
			if r.Before {
				r.Before = false
				before = append(before, r)
			}
		}
		pairs := ratios(ratesOf(results, j), ratesOf(before, j))
		if len(pairs) == 0 {
			text += fmt.Sprintf("| %s | %s | – | – | 0 |\n", j.load, j.system.Name)
			continue
		}
		interval := "– (needs 6 pairs)"
		if low, high, ok := report.Interval(pairs); ok {
			interval = fmt.Sprintf("%.3f to %.3f", low, high)
		}
		text += fmt.Sprintf("| %s | %s | %.3f | %s | %d |\n", j.load, j.system.Name, report.Median(pairs), interval, len(pairs))
	}
	_, err := io.WriteString(out, text)
	return err
}
