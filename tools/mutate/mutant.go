package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A mutant is one change of one file: text replaces the bytes from start to end.
type mutant struct {
	file, abs   string
	dir         string // the package's, relative to the module
	fn          string // the function around it: Planner.add
	what        string // the changed expression or statement, as written
	nth, of     int    // of its kind in fn with the same what, from 1
	onLine      int    // of its kind on its line, from 1
	start, end  int
	text        string
	at          int // the offset that names its place
	line, col   int
	kind        string
	source      string // the line at its place
	replacement string // the changed lines after the change
	original    []byte // the whole file
	hash        string // of the original and the change
}

// id names the mutant by its place. Mutants of one kind on one line of source are numbered: "== -> !=
// #2".
func (m mutant) id() string {
	id := fmt.Sprintf("%s:%d:%d %s", m.file, m.line, m.col, m.kind)
	if m.onLine > 1 {
		id += fmt.Sprintf(" #%d", m.onLine)
	}
	return id
}

// key names the mutant by the code that it changes, and not by its place. Explanations begin with it.
func (m mutant) key() string {
	place := m.dir
	if m.fn != "" {
		place += " " + m.fn
	}
	if m.of > 1 {
		place += fmt.Sprintf("#%d", m.nth)
	}
	return fmt.Sprintf("%s: %s | %s", place, m.what, m.kind)
}

// changed returns the whole file with the change.
func (m mutant) changed() []byte {
	return slices.Concat(m.original[:m.start], []byte(m.text), m.original[m.end:])
}

// mutants returns every mutant of p's chosen files that type-checks, in order, and the file names of
// the others. A function that only refuses has none.
func (p *pkg) mutants(race bool, exclude *regexp.Regexp, only func(fn string) bool) (all []mutant, invalid []string) {
	for _, s := range p.files {
		if !s.chosen {
			continue
		}
		f := &finder{pkg: p, source: s, race: race, exclude: exclude, errors: map[ast.Expr]bool{}, parents: parents(s.file)}
		for _, d := range s.file.Decls {
			if f.fn = funcName(d); only == nil || only(f.fn) {
				ast.Inspect(d, f.visit)
			}
		}
		slices.SortFunc(f.found, compareMutants)
		f.found = slices.CompactFunc(f.found, func(a, b mutant) bool {
			return a.start == b.start && a.end == b.end && a.text == b.text
		})
		all, invalid = append(all, f.found...), append(invalid, f.invalid...)
	}
	number(all)
	return all, invalid
}

// A finder collects the mutants of one file.
type finder struct {
	*pkg
	source  *source
	race    bool
	exclude *regexp.Regexp
	fn      string
	errors  map[ast.Expr]bool // returned, and certainly not nil
	parents map[ast.Node]ast.Node
	found   []mutant
	invalid []string
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) textOf(n ast.Node) string {
	return string(f.source.text[f.offset(n.Pos()):f.offset(n.End())])
}

// add records the mutant of what, in which text replaces the bytes from from to to. used is the code
// that text omits. If the mutant does not compile only because a variable or an import is then unused,
// blank assignments name them.
func (f *finder) add(what string, at, from, to token.Pos, kind, text string, used ast.Node) {
	m := mutant{
		file: f.source.name, abs: f.source.abs, dir: filepath.ToSlash(f.dir), fn: f.fn, what: what,
		start: f.offset(from), end: f.offset(to), text: text, at: f.offset(at), kind: kind, original: f.source.text,
	}
	if f.exclude != nil && f.exclude.Match(lines(m.original, m.start, m.end)) {
		return
	}
	if !f.compiles(f.source, m.changed()) {
		m.text = text + f.blanks(used)
		if m.text == text || !f.compiles(f.source, m.changed()) {
			f.invalid = append(f.invalid, m.file)
			return
		}
	}
	pos := f.fset.Position(at)
	m.line, m.col = pos.Line, pos.Column
	m.source = show(lines(m.original, m.at, m.at))
	m.replacement = m.showReplacement()
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %q %s", m.start, m.end, m.text, m.original))
	m.hash = hex.EncodeToString(sum[:8])
	f.found = append(f.found, m)
}

// lines widens start and end to whole lines.
func lines(text []byte, start, end int) []byte {
	from := strings.LastIndexByte(string(text[:start]), '\n') + 1
	to := len(text)
	if i := strings.IndexByte(string(text[end:]), '\n'); i >= 0 {
		to = end + i
	}
	return text[from:to]
}

// showReplacement returns the changed lines in one line.
func (m mutant) showReplacement() string {
	changed := m.changed()
	if s := strings.TrimPrefix(show(lines(changed, m.start, m.start+len(m.text))), "; "); s != "" {
		return s
	}
	return "(removed)"
}

// show returns text in one line of at most 160 characters.
func show(text []byte) string {
	s := []rune(strings.Join(strings.Fields(string(text)), " "))
	if len(s) > 160 {
		s = append(s[:157], '.', '.', '.')
	}
	return string(s)
}

// number numbers mutants of one kind on one line of source, and mutants of the same code in one
// function. all are a package's.
func number(all []mutant) {
	type place struct {
		file string
		line int
		kind string
	}
	type name struct{ fn, what, kind string }
	onLine, inFunc := map[place]int{}, map[name]int{}
	for i := range all {
		m := &all[i]
		p, n := place{m.file, m.line, m.kind}, name{m.fn, m.what, m.kind}
		onLine[p]++
		inFunc[n]++
		m.onLine, m.nth = onLine[p], inFunc[n]
	}
	for i := range all {
		m := &all[i]
		m.of = inFunc[name{m.fn, m.what, m.kind}]
	}
}
