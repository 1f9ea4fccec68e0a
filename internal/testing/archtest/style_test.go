package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository's root, seen from this package.
const root = "../../.."

// A source is a parsed Go file.
type source struct {
	name  string
	text  string
	set   *token.FileSet
	file  *ast.File
	lines int
}

func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

func (s source) at(p token.Pos) string {
	return fmt.Sprintf("%s:%d", s.name, s.set.Position(p).Line)
}

// sources parses every Go file of the repository except generated ones.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (d.Name()[0] == '.' || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		s, err := parse(path, string(text))
		if err == nil && !ast.IsGenerated(s.file) {
			all = append(all, s)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parse(name, text string) (source, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{name: filepath.ToSlash(strings.TrimPrefix(name, root+"/")), text: text, set: set, file: file, lines: strings.Count(text, "\n")}, err
}

func TestHouseRules(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		for _, problem := range breaches(s) {
			t.Error(problem)
		}
	}
}

// breaches returns faults of production code that no linter here reports.
func breaches(s source) []string {
	var problems []string
	complain := func(p token.Pos, what string) {
		problems = append(problems, s.at(p)+": "+what)
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && n.Sel.Name == "Sleep" {
				complain(n.Pos(), "time.Sleep cannot be stopped: use a timer and a context")
			}
		case *ast.FuncDecl:
			if n.Name.Name == "init" && n.Recv == nil {
				complain(n.Pos(), "init registers behind the reader's back: wire it in internal/app")
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && strings.Contains(n.Value, "failed to ") {
				complain(n.Pos(), `"failed to" says nothing in an error: name what was done`)
			}
		}
		return true
	})
	return problems
}

func TestBreachesAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"package a\nfunc f() { time.Sleep(1) }":                        1,
		"package a\nfunc init() {}":                                    1,
		"package a\nvar e = errors.New(\"failed to open\")":            1,
		"package a\ntype t int\nfunc (t) init() { time.AfterFunc(1) }": 0,
	} {
		s, err := parse("a.go", text)
		if err != nil {
			t.Fatal(err)
		}
		if got := breaches(s); len(got) != want {
			t.Errorf("%q: got %d breaches %q, want %d", text, len(got), got, want)
		}
	}
}

// Nine in ten functions fit a screen, nine in ten files a sitting.
func TestSizes(t *testing.T) {
	t.Parallel()
	var functions, files []sized
	for _, s := range sources(t) {
		files = append(files, sized{s.lines, s.name})
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				n := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
				functions = append(functions, sized{n, s.at(f.Pos()) + " " + f.Name.Name})
			}
		}
	}
	if err := errors.Join(checkSizes("function", functions, 45), checkSizes("file", files, 400)); err != nil {
		t.Error(err)
	}
}

type sized struct {
	lines int
	name  string
}

// checkSizes reports the largest things if more than one in ten is over limit.
func checkSizes(what string, things []sized, limit int) error {
	slices.SortFunc(things, func(a, b sized) int { return b.lines - a.lines })
	if len(things) == 0 || things[len(things)/10].lines <= limit {
		return nil
	}
	return fmt.Errorf("more than a tenth of %ss have over %d lines; the longest: %v", what, limit, things[:min(5, len(things))])
}

func TestCheckSizes(t *testing.T) {
	t.Parallel()
	things := make([]sized, 20)
	things[7].lines, things[8].lines = 50, 60
	if err := checkSizes("thing", things, 45); err != nil {
		t.Errorf("2 of 20 over the limit: got %v, want nil", err)
	}
	things[9].lines = 46
	if err := checkSizes("thing", things, 45); err == nil {
		t.Error("3 of 20 over the limit: got nil, want an error")
	}
}
