package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// explanations are survivors that change nothing, each with a written reason. A line of their file is
//
//	aggregator Planner.add: n > limit | > -> >= | n is never limit here
//
// It names the package, the function, the changed code, and the kind of change. The report prints these
// for each survivor. Outside functions the name is omitted. Planner.add#2 means the second mutant of
// the same code in it. Empty lines and lines that begin with # are for people.
type explanations struct {
	name string
	all  []*explanation
}

type explanation struct {
	line                     int
	nth                      int // 0 for all
	dir, fn, what, kind, why string
	matches                  int
}

func readExplained(name string) (*explanations, error) {
	e := &explanations{name: name}
	if name == "" {
		return e, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		x, err := parseExplanation(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		x.line = i + 1
		e.all = append(e.all, x)
	}
	return e, nil
}

// parseExplanation splits from the right: Go may have " | " itself.
func parseExplanation(line string) (*explanation, error) {
	place, rest, ok := strings.Cut(line, ": ")
	i := strings.LastIndex(rest, " | ")
	if !ok || i < 0 {
		return nil, fmt.Errorf("want PACKAGE [FUNC]: what | kind | why, got %q", line)
	}
	x := &explanation{why: strings.TrimSpace(rest[i+3:])}
	rest = rest[:i]
	if i = strings.LastIndex(rest, " | "); i < 0 || x.why == "" {
		return nil, fmt.Errorf("want PACKAGE [FUNC]: what | kind | why, got %q", line)
	}
	x.dir, x.fn, _ = strings.Cut(place, " ")
	if fn, nth, ok := strings.Cut(x.fn, "#"); ok {
		n, err := strconv.Atoi(nth)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("want FUNC#N with N from 1, got %q", x.fn)
		}
		x.fn, x.nth = fn, n
	}
	x.what, x.kind = strings.TrimSpace(rest[:i]), strings.TrimSpace(rest[i+3:])
	return x, nil
}

// match returns why m changes nothing, or "".
func (e *explanations) match(m mutant) string {
	for _, x := range e.all {
		if x.explains(m) {
			x.matches++
			return x.why
		}
	}
	return ""
}

func (x *explanation) explains(m mutant) bool {
	return x.dir == m.dir && x.fn == m.fn && (x.nth == 0 || x.nth == m.nth) && x.what == m.what && x.kind == m.kind
}

// report lists the explained mutants. If all mutants of a function were examined, it also lists the
// lines that explain none of them or more than one.
func (e *explanations) report(w io.Writer, mutants []mutant, whole bool) {
	seen := map[string]bool{}
	for _, m := range mutants {
		seen[m.dir+" "+m.fn] = true
		for _, x := range e.all {
			if x.explains(m) {
				fmt.Fprintf(w, "explained: %s\n\t%s\n\t%s\n\t%s\n", m.id(), m.source, m.replacement, x.why)
				break
			}
		}
	}
	for _, x := range e.all {
		if err := e.misfit(x); err != nil && whole && seen[x.dir+" "+x.fn] {
			fmt.Fprintln(w, err)
		}
	}
}

// misfit is an error for a line that explains no mutant, or more than one.
func (e *explanations) misfit(x *explanation) error {
	if x.matches == 1 {
		return nil
	}
	return fmt.Errorf("%s:%d: explains %d mutants, not one: %s: %s | %s", e.name, x.line, x.matches, strings.TrimSpace(x.dir+" "+x.fn), x.what, x.kind)
}

// check reports all misfits. It examines only functions that explanations name.
func (e *explanations) check(ctx context.Context, dir string, race bool) error {
	named, dirs := map[string]bool{}, []string{}
	for _, x := range e.all {
		named[x.dir+" "+x.fn] = true
		if !slices.Contains(dirs, x.dir) {
			dirs = append(dirs, x.dir)
		}
	}
	pkgs, err := load(ctx, dir, dirs)
	if err != nil {
		return err
	}
	for _, p := range pkgs {
		mutants, _ := p.mutants(race, nil, func(fn string) bool { return named[filepath.ToSlash(p.dir)+" "+fn] })
		for _, m := range mutants {
			e.match(m)
		}
	}
	var errs []error
	for _, x := range e.all {
		errs = append(errs, e.misfit(x))
	}
	return errors.Join(errs...)
}
