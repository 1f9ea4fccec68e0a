// Package bugtest plants mistakes in the product, one at a time, so that a test which has to
// find such mistakes can be seen to find them.
//
// A bug is a patch, not a branch under a build tag: the product has no code that must never
// run. Its file, in testdata/bugs of the package that finds it, has a line that says what it
// is, then changes:
//
//	# what is wrong
//	file: aggregator/part.go
//	--- old
//	whole lines that stand there exactly once
//	--- new
//	what stands there instead
//	--- end
//
// The tests that use it are two directories below the repository's root.
package bugtest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// root is the repository's root, seen from the package that is tested.
const root = "../.."

// A Bug is a mistake that could have been made in the product.
type Bug struct {
	Name, What string
	changes    []change
}

// A change replaces lines of a file.
type change struct{ file, old, new string }

// Read reads all bugs in a directory, in the order of their names.
func Read(t testing.TB, dir string) []Bug {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no bugs in %s (%v)", dir, err)
	}
	all := make([]Bug, len(names))
	for i, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if all[i], err = parse(string(text)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[i].Name = strings.TrimSuffix(filepath.Base(name), ".txt")
	}
	return all
}

func parse(text string) (b Bug, err error) {
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
		case isWhat && b.What == "":
			b.What = what
		default:
			return b, fmt.Errorf("line %d is out of place: %q", n+1, line)
		}
	}
	if b.What == "" || len(b.changes) == 0 || into != nil {
		return b, fmt.Errorf("has no description, no change, or no end")
	}
	return b, nil
}

// plant returns the files that the bug changes, as they are with it. An error means that
// the product has changed and the bug with it has to.
func (b *Bug) plant() (map[string]string, error) {
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

// Build returns the test binary of the package in the working directory, with the bug in
// what it tests.
func (b *Bug) Build(t testing.TB) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "planted.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "-overlay", b.Overlay(t), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// Overlay returns a file for go build -overlay, which builds the product with the bug in it.
func (b *Bug) Overlay(t testing.TB) string {
	t.Helper()
	files, err := b.plant()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := make(map[string]string)
	for file, text := range files {
		planted := filepath.Join(dir, strconv.Itoa(len(replace))+".go")
		if err := os.WriteFile(planted, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		replace[path] = planted
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
