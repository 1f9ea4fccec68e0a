package sim

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository's root, seen from this package.
const root = "../.."

// A bug is a mistake that could have been made in the product. It is a patch, not a branch
// under a build tag, so that the product has no code that must never run.
//
// Its file in testdata/bugs has a line that says what it is, then changes:
//
//	# what is wrong
//	file: aggregator/part.go
//	--- old
//	whole lines that stand there exactly once
//	--- new
//	what stands there instead
//	--- end
type bug struct {
	name, what string
	changes    []change
}

// A change replaces lines of a file.
type change struct{ file, old, new string }

// bugs reads all of them, in the order of their names.
func bugs(t *testing.T) []bug {
	t.Helper()
	names, err := filepath.Glob("testdata/bugs/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("no bugs in testdata/bugs (%v)", err)
	}
	all := make([]bug, len(names))
	for i, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if all[i], err = parseBug(string(text)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[i].name = strings.TrimSuffix(filepath.Base(name), ".txt")
	}
	return all
}

func parseBug(text string) (b bug, err error) {
	var into *string // where lines go
	var file string
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		what, isWhat := strings.CutPrefix(line, "# ")
		name, isFile := strings.CutPrefix(line, "file: ")
		switch {
		case line == "--- old" && file != "":
			b.changes = append(b.changes, change{file: file})
			into = &b.changes[len(b.changes)-1].old
		case line == "--- new" && into != nil:
			into = &b.changes[len(b.changes)-1].new
		case line == "--- end":
			into = nil
		case into != nil:
			*into += line + "\n"
		case isFile:
			file = name
		case isWhat && b.what == "":
			b.what = what
		default:
			return b, fmt.Errorf("line %d is out of place: %q", n+1, line)
		}
	}
	if b.what == "" || len(b.changes) == 0 || into != nil {
		return b, fmt.Errorf("has no description, no change, or no end")
	}
	return b, nil
}

// plant returns the files that the bug changes, as they are with it. An error means that
// the product has changed and the bug with it has to.
func (b *bug) plant() (map[string]string, error) {
	files := make(map[string]string)
	for _, c := range b.changes {
		text, ok := files[c.file]
		if !ok {
			is, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				return nil, err
			}
			text = string(is)
		}
		// Whole lines: one that ends the same is another.
		if n := strings.Count("\n"+text, "\n"+c.old); n != 1 {
			return nil, fmt.Errorf("%s has these lines %d times, not once:\n%s", c.file, n, c.old)
		}
		files[c.file] = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+c.old, "\n"+c.new, 1), "\n")
	}
	return files, nil
}

// Every bug can still be planted, and what comes out is Go. To compile all of it would
// take minutes: here only the packages with a bug are type-checked.
func TestBugsCanBePlanted(t *testing.T) {
	t.Parallel()
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", exported(t))
	for _, b := range bugs(t) {
		files, err := b.plant()
		if err != nil {
			t.Errorf("%s: %v", b.name, err)
			continue
		}
		for _, dir := range dirs(files) {
			if err := typeCheck(set, imports, dir, files); err != nil {
				t.Errorf("%s: %v", b.name, err)
			}
		}
	}
}

// dirs are the packages of files.
func dirs(files map[string]string) []string {
	seen := make(map[string]struct{})
	for file := range files {
		seen[filepath.Dir(file)] = struct{}{}
	}
	return slices.Sorted(maps.Keys(seen))
}

// exported finds what the compiler wrote about a package.
func exported(t *testing.T) importer.Lookup {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	paths := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		paths[name] = path
	}
	return func(name string) (io.ReadCloser, error) { return os.Open(paths[name]) }
}

// typeCheck checks the package in dir with some of its files replaced.
func typeCheck(set *token.FileSet, imports types.Importer, dir string, files map[string]string) error {
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return err
	}
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		var text any
		if planted, ok := files[dir+"/"+filepath.Base(name)]; ok {
			text = planted
		}
		f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, f)
	}
	_, err = (&types.Config{Importer: imports}).Check(dir, set, parsed, nil)
	return err
}

// A patch that fits nowhere, or in two places, is an error and not planted half.
func TestBadPatchesAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]change{
		"nowhere":        {"doc.go", "no such line\n", ""},
		"twice":          {"doc.go", "//\n", ""},
		"part of a line": {"doc.go", "countmill\n", ""},
		"no such file":   {"nobody.go", "package countmill\n", ""},
	} {
		b := bug{changes: []change{c}}
		if files, err := b.plant(); err == nil {
			t.Errorf("%s: planted: %q", name, files)
		}
	}
	for _, text := range []string{
		"", "# what\n", "file: a.go\n--- old\na\n--- new\nb\n--- end\n", "# what\nfile: a.go\n--- old\na\n--- new\nb\n",
		"# what\n--- old\na\n--- new\n--- end\n",
	} {
		if _, err := parseBug(text); err == nil {
			t.Errorf("is taken for a bug: %q", text)
		}
	}
}
