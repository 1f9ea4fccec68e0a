package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// printTables prints a table a load, in Markdown.
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
		times = spread(all, func(x float64) string { return fmt.Sprintf("%.3g", x) })
	}
	rate := "–"
	if len(rates) > 0 {
		rate = spread(slices.Collect(maps.Values(rates)), short)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %d | %s |", j.system.Name, rate, cmp.Or(reference.system.Name, "–"), times, len(rates), remarks(results, j))
}

// ratesOf are the rates of a job's good measurements, by round.
func ratesOf(results []result, j job) map[int]float64 {
	rates := make(map[int]float64)
	for _, r := range results {
		if r.System == j.system.Name && r.Load == j.load && r.ok() {
			rates[r.Round] = r.Rate
		}
	}
	return rates
}

// ratios are a system's rates in terms of another's in the same round.
func ratios(rates, reference map[int]float64) []float64 {
	var all []float64
	for round, rate := range rates {
		if of := reference[round]; of > 0 {
			all = append(all, rate/of)
		}
	}
	return all
}

// fastest is the member of the family with the highest median: the family is measured by
// its best.
func fastest(plan []job, results []result, family, load string) job {
	var best job
	most := 0.0
	for _, j := range plan {
		rates := ratesOf(results, j)
		if family == "" || j.system.Family != family || j.load != load || len(rates) == 0 {
			continue
		}
		if m := median(slices.Collect(maps.Values(rates))); m > most {
			best, most = j, m
		}
	}
	return best
}

// remarks are the notes of the last good round, and what went wrong in any.
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
				notes = append(notes, name+" "+short(r.Notes[name]))
			}
		}
	}
	text := strings.Join(append(wrong, notes...), "; ")
	return strings.NewReplacer("|", "/", "\n", " ").Replace(text)
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

func spread(all []float64, format func(float64) string) string {
	if len(all) == 1 {
		return format(all[0])
	}
	return fmt.Sprintf("%s (%s to %s)", format(median(all)), format(slices.Min(all)), format(slices.Max(all)))
}

// short writes a number with three digits that count.
func short(x float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= unit.size {
			return fmt.Sprintf("%.3g%s", x/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.3g", x)
}

func writeJSON(path string, head *header, results []result) error {
	text, err := json.MarshalIndent(struct {
		*header
		Results []result `json:"results"`
	}{head, results}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
