package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// explanations are survivors of which somebody has written down why they change nothing. A
// line of their file is
//
//	aggregator/plan.go Planner.add: if n > limit { | > -> >= | n is never limit here
//
// and holds wherever the function, which may be left out, has that line; Planner.add#2 means
// the second place in it only. Empty lines and lines that begin with # are for people.
type explanations struct {
	name string
	all  []*explanation
}

type explanation struct {
	line                        int
	nth                         int // 0 for all
	file, fn, source, kind, why string
	matches                     int
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

// parseExplanation splits from the right: source lines may have " | " themselves.
func parseExplanation(line string) (*explanation, error) {
	place, rest, ok := strings.Cut(line, ": ")
	i := strings.LastIndex(rest, " | ")
	if !ok || i < 0 {
		return nil, fmt.Errorf("want PATH [FUNC]: source line | kind | why, got %q", line)
	}
	x := &explanation{why: strings.TrimSpace(rest[i+3:])}
	rest = rest[:i]
	if i = strings.LastIndex(rest, " | "); i < 0 || x.why == "" {
		return nil, fmt.Errorf("want PATH [FUNC]: source line | kind | why, got %q", line)
	}
	x.file, x.fn, _ = strings.Cut(place, " ")
	if fn, nth, ok := strings.Cut(x.fn, "#"); ok {
		n, err := strconv.Atoi(nth)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("want FUNC#N with N from 1, got %q", x.fn)
		}
		x.fn, x.nth = fn, n
	}
	x.source, x.kind = show([]byte(rest[:i])), strings.TrimSpace(rest[i+3:])
	return x, nil
}

// match is why m changes nothing, or "".
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
	return x.file == m.file && (x.fn == "" || x.fn == m.fn) && (x.nth == 0 || x.nth == m.nth) && x.source == m.source && x.kind == m.kind
}

// report names the explained mutants and, where all mutants of a file were looked at, the
// lines that explain none of them or more than one.
func (e *explanations) report(w io.Writer, mutants []mutant, whole bool) {
	seen := map[string]bool{}
	for _, m := range mutants {
		seen[m.file] = true
		for _, x := range e.all {
			if x.explains(m) {
				fmt.Fprintf(w, "explained: %s\n\t%s\n\t%s\n\t%s\n", m.id(), m.source, m.replacement, x.why)
				break
			}
		}
	}
	for _, x := range e.all {
		if whole && seen[x.file] && x.matches != 1 {
			fmt.Fprintf(w, "%s:%d: explains %d mutants: %s %s: %s | %s\n", e.name, x.line, x.matches, x.file, x.fn, x.source, x.kind)
		}
	}
}
