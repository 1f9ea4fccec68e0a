package bugtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// plantedEnv names the bug that a binary of Build has.
const plantedEnv = "COUNTMILL_PLANTED_BUG"

// A Planter runs the test binary of a package with one bug in the product.
type Planter struct {
	binary string          // of all bugs but those alone
	alone  map[string]bool // bugs outside of functions: each has a binary of its own
}

// Build builds the tests of the package in the working directory, with all bugs in the product. A function with bugs has a copy for
// each, and asks at its beginning which of them is planted.
func Build(t testing.TB, bugs []Bug) *Planter {
	t.Helper()
	files, alone := together(t, bugs)
	return &Planter{binary: compile(t, overlay(t, files)), alone: alone}
}

// together returns the files of the product with all bugs, and the names of bugs that are in none of them.
func together(t testing.TB, bugs []Bug) (texts map[string]string, alone map[string]bool) {
	t.Helper()
	texts, alone = make(map[string]string), make(map[string]bool)
	files := make(map[string]*hosting)
	for i := range bugs {
		planted, err := bugs[i].plant(root)
		if err == nil {
			err = host(files, i, &bugs[i], planted)
		}
		switch {
		case errors.Is(err, errOutside):
			alone[bugs[i].Name] = true
		case err != nil:
			t.Fatalf("%s: %v", bugs[i].Name, err)
		}
	}
	for name, h := range files {
		texts[name] = h.together()
		texts[filepath.ToSlash(filepath.Join(filepath.Dir(name), "planted_bug.go"))] =
			fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar plantedBug = os.Getenv(%q)\n", h.file.Name.Name, plantedEnv)
	}
	return texts, alone
}

// Command runs the tests with a bug.
func (p *Planter) Command(t testing.TB, b *Bug, args ...string) *exec.Cmd {
	t.Helper()
	binary := p.binary
	if p.alone[b.Name] {
		binary = compile(t, b.Overlay(t))
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(cmd.Environ(), plantedEnv+"="+b.Name)
	return cmd
}

// A hosting is a file of the product whose functions get copies.
type hosting struct {
	source
	edits   []hosted
	copies  strings.Builder
	imports []string
}

// hosted is a text that replaces the bytes of a file between from and to.
type hosted struct {
	from, to int
	text     string
}

// errOutside: a bug changes something else than functions.
var errOutside = errors.New("it changes more than functions")

// host adds the copies of a bug to files. It adds none if it fails.
func host(files map[string]*hosting, n int, b *Bug, planted map[string]string) error {
	var add []func()
	for name, text := range planted {
		h := files[name]
		if h == nil {
			var err error
			if h, err = newHosting(name); err != nil {
				return err
			}
		}
		with := source{text: text, set: token.NewFileSet()}
		var err error
		if with.file, err = parser.ParseFile(with.set, name, text, parser.SkipObjectResolution); err != nil {
			return err
		}
		if len(with.file.Decls) < len(h.file.Decls) {
			return errOutside
		}
		var decls []ast.Decl // without imports
		for _, d := range with.file.Decls {
			if !isImport(d) {
				decls = append(decls, d)
			}
		}
		i := 0
		for _, d := range h.file.Decls {
			if isImport(d) {
				continue
			}
			if h.of(d) != with.of(decls[i]) {
				was, ok := d.(*ast.FuncDecl)
				if !ok {
					return errOutside
				}
				is := decls[i].(*ast.FuncDecl)
				add = append(add, func() { h.dispatch(was, &with, is, n, b.Name) })
			}
			i++
		}
		add = append(add, func() {
			files[name] = h
			for _, spec := range with.file.Imports {
				h.imports = append(h.imports, spec.Path.Value)
			}
		})
	}
	for _, f := range add {
		f()
	}
	return nil
}

func isImport(d ast.Decl) bool {
	g, ok := d.(*ast.GenDecl)
	return ok && g.Tok == token.IMPORT
}

func newHosting(name string) (*hosting, error) {
	h := &hosting{source: source{name: name, set: token.NewFileSet()}}
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	h.text = string(text)
	h.file, err = parser.ParseFile(h.set, name, text, parser.SkipObjectResolution)
	return h, err
}

// of is the text of a node.
func (s *source) of(n ast.Node) string { return s.text[s.offset(n.Pos()):s.offset(n.End())] }

// dispatch adds a copy of a function, and has the function call it.
func (h *hosting) dispatch(was *ast.FuncDecl, with *source, is *ast.FuncDecl, n int, bug string) {
	name := fmt.Sprintf("%sPlanted%d", is.Name.Name, n)
	text, at := with.of(is), with.offset(is.Name.Pos())-with.offset(is.Pos())
	h.copies.WriteString("\n" + text[:at] + name + text[at+len(is.Name.Name):] + "\n")
	var args []string
	for _, f := range was.Type.Params.List {
		args = append(args, h.named(f, len(args))...)
		if _, ok := f.Type.(*ast.Ellipsis); ok {
			args[len(args)-1] += "..."
		}
	}
	if was.Recv != nil {
		name = h.named(was.Recv.List[0], 99)[0] + "." + name
	} else if was.Type.TypeParams != nil {
		var types []string
		for _, f := range was.Type.TypeParams.List {
			for _, id := range f.Names {
				types = append(types, id.Name)
			}
		}
		name += "[" + strings.Join(types, ", ") + "]"
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if was.Type.Results != nil {
		call = "return " + call
	} else {
		call += "; return"
	}
	at = h.offset(was.Body.Lbrace) + 1
	h.edits = append(h.edits, hosted{at, at, fmt.Sprintf(" if plantedBug == %q { %s };", bug, call)})
}

// named returns the names of a parameter, and gives it one where it has none.
func (h *hosting) named(f *ast.Field, n int) (names []string) {
	if f.Names == nil {
		name := fmt.Sprint("p", n)
		h.edits = append(h.edits, hosted{h.offset(f.Type.Pos()), h.offset(f.Type.Pos()), name + " "})
		return []string{name}
	}
	for i, id := range f.Names {
		name := id.Name
		if name == "_" {
			name = fmt.Sprint("p", n+i)
			h.edits = append(h.edits, hosted{h.offset(id.Pos()), h.offset(id.End()), name})
		}
		names = append(names, name)
	}
	return names
}

// text is the file with all copies.
func (h *hosting) together() string {
	slices.SortStableFunc(h.edits, func(a, b hosted) int { return b.from - a.from })
	text, last := h.text, hosted{from: -1}
	for _, e := range h.edits {
		if e == last { // a parameter that was named for another bug
			continue
		}
		text, last = text[:e.from]+e.text+text[e.to:], e
	}
	text += h.copies.String()
	s := source{name: h.name, text: text, set: token.NewFileSet()}
	for _, path := range h.imports {
		if file, err := parser.ParseFile(s.set, h.name, s.text, parser.ImportsOnly); err == nil {
			s.file = file
			s.text = s.importing(strings.Trim(path, `"`))
			s.set = token.NewFileSet()
		}
	}
	return s.text
}
