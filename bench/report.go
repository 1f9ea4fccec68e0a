package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/countmill/countmill/bench/internal/report"
)

// printTables prints a Markdown table for each load.
func printTables(out io.Writer, plan []job, results []result) error {
	w := bufio.NewWriter(out)
	last := ""
	for _, j := range plan {
		if j.load != last {
			last = j.load
			fmt.Fprintf(w, "\n## %s\n\n", last)
			fmt.Fprintln(w, "| system | increments/s: median (least to most) | against | times (least to most) | rounds | notes |")
			fmt.Fprintln(w, "| --- | ---: | --- | ---: | ---: | --- |")
		}
		fmt.Fprintln(w, row(plan, results, j))
	}
	return w.Flush()
}

func row(plan []job, results []result, j job) string {
	rates := ratesOf(results, j)
	reference := fastest(plan, results, j.system.Against, j.load)
	times := "–"
	if all := ratios(rates, ratesOf(results, reference)); len(all) > 0 {
		times = report.Spread(all, func(x float64) string { return fmt.Sprintf("%.3g", x) })
	}
	rate := "–"
	if len(rates) > 0 {
		rate = report.Spread(slices.Collect(maps.Values(rates)), report.Short)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %d | %s |", j.system.Name, rate, cmp.Or(reference.system.Name, "–"), times, len(rates), remarks(results, j))
}

// ratesOf returns the rates of a job's successful measurements, by round.
func ratesOf(results []result, j job) map[int]float64 {
	rates := make(map[int]float64)
	for _, r := range results {
		if r.System == j.system.Name && r.Load == j.load && r.ok() {
			rates[r.Round] = r.Rate
		}
	}
	return rates
}

// ratios divides a system's rates by another's in the same round.
func ratios(rates, reference map[int]float64) []float64 {
	var all []float64
	for round, rate := range rates {
		if of := reference[round]; of > 0 {
			all = append(all, rate/of)
		}
	}
	return all
}

// fastest returns the member of the family with the highest median; it represents the family.
func fastest(plan []job, results []result, family, load string) job {
	var best job
	most := 0.0
	for _, j := range plan {
		rates := ratesOf(results, j)
		if family == "" || j.system.Family != family || j.load != load || len(rates) == 0 {
			continue
		}
		if m := report.Median(slices.Collect(maps.Values(rates))); m > most {
			best, most = j, m
		}
	}
	return best
}

// remarks returns the notes of the last successful round, and the errors of all rounds.
func remarks(results []result, j job) string {
	var notes, wrong []string
	for _, r := range results {
		switch {
		case r.System != j.system.Name || r.Load != j.load:
		case r.Missing != "":
			wrong = []string{"MISSING: " + r.Missing}
		case r.Error != "":
			wrong = append(wrong, fmt.Sprintf("ERROR in round %d: %s", r.Round, r.Error))
		default:
			notes = nil
			for _, name := range slices.Sorted(maps.Keys(r.Notes)) {
				notes = append(notes, name+" "+report.Short(r.Notes[name]))
			}
		}
	}
	text := strings.Join(append(wrong, notes...), "; ")
	return strings.NewReplacer("|", "/", "\n", " ").Replace(text)
}
