package main

import (
	"fmt"
	"io"
	"path"
	"slices"
	"text/tabwriter"
)

// A tally counts the verdicts on one file or package.
type tally struct {
	mutants, byTests, byTime, byThen, survived, explained, notCompiling, notRun int
}

// score is the percentage of killed mutants, without those that cannot be killed.
func (t tally) score() string {
	n := t.byTests + t.byTime + t.byThen
	if n+t.survived == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(n+t.survived))
}

func (t *tally) count(r record) {
	t.mutants++
	switch {
	case r.Verdict == "":
		t.notRun++
	case r.Verdict == survived:
		t.survived++
	case r.Verdict == isExplained:
		t.explained++
	case r.Verdict == notCompiling:
		t.notCompiling++
	case r.Then != "":
		t.byThen++
	case r.Verdict == timedOut:
		t.byTime++
	default:
		t.byTests++
	}
}

// report prints the table of files and packages, then the survivors. invalid has a file name for each
// mutant that never compiled.
func report(w io.Writer, mutants []mutant, records []record, invalid []string) {
	tallies := map[string]*tally{}
	of := func(file string) []*tally {
		var all []*tally
		for _, name := range []string{file, path.Dir(file) + "/", "total"} {
			if tallies[name] == nil {
				tallies[name] = &tally{}
			}
			all = append(all, tallies[name])
		}
		return all
	}
	for i, m := range mutants {
		for _, t := range of(m.file) {
			t.count(records[i])
		}
	}
	for _, file := range invalid {
		for _, t := range of(file) {
			t.notCompiling++
		}
	}
	var names []string
	for name := range tallies {
		if name != "total" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "mutants\tby tests\tby time-out\tby second\tsurvived\texplained\tnot compiling\tnot run\tscore\t  file\t")
	for _, name := range append(names, "total") {
		if t := tallies[name]; t != nil {
			fmt.Fprintf(tab, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t  %s\t\n", t.mutants, t.byTests, t.byTime, t.byThen, t.survived, t.explained, t.notCompiling, t.notRun, t.score(), name)
		}
	}
	tab.Flush()
	for i, m := range mutants {
		if records[i].Verdict == survived {
			fmt.Fprintf(w, "survived: %s\n\t%s\n\t%s\n\t%s | WHY\n", m.id(), m.source, m.replacement, m.key())
		}
	}
}
