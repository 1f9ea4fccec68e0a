// Package bugtest plants mistakes in the product, one at a time, so that a test which has to
// find such mistakes can be seen to find them.
//
// A bug is a file in testdata/bugs of the package that finds it, and not a branch under a
// build tag: the product has no code that must never run. The file names a function and says
// what to change there. It names no file and quotes no lines that it leaves alone, so that it
// still fits when code moves, is formatted or is renamed around it:
//
//	# A message is acknowledged before its parts are committed.
//	in: aggregator loop.launch
//	at: acknowledged before its parts are committed
//	before:
//		for _, p := range j.parts {
//			p.eachHolder(func(h *held) { h.msg.Ack() })
//		}
//
// The first line describes the mistake. The others:
//
//	found: TEST          the test that has to fail with the bug, for those of [Found]
//	in: PACKAGE NAME     a function of the package in that directory; a method comes after
//	                     its type: loop.launch. A constant or a variable works too.
//	at: WORDS            an anchor: the statement that a comment in that function is about
//	before:              the code below comes before the place,
//	after:               behind it,
//	replace:             or instead of it
//	delete:              the place is left out
//	change: OLD -> NEW   an expression at the place becomes another
//	import: PATH         the function's file imports the package, unless it does already
//
// An anchor is the statement that begins or ends on the comment's line, else the one right
// below the comment; a case and its body are one statement. WORDS are some words of the
// comment, and no other comment of the function has them. Without at, or after another in,
// the place is the whole body of the function.
//
// A change looks for OLD at its place, but in the head only of an if, a for, a switch or a
// case. It must be there exactly once. The code of the others is indented by a tab at least.
package bugtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// root is the repository's root: the nearest directory above the tested package with a go.mod.
var root = func() string {
	dir := "."
	for range 8 {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Join(dir, "..")
	}
	return dir
}()

// A Bug is a mistake that could have been made in the product.
type Bug struct {
	Name, What string
	Found      string // the test that has to find it; empty where a search does
	edits      []edit
}

// all matches the directories with bugs of a package.
const all = "testdata/*bugs"

// Read reads all bugs in the directories that match a pattern, in the order of their names.
func Read(t testing.TB, dirs string) []Bug {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dirs, "*.txt"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no bugs in %s (%v)", dirs, err)
	}
	bugs := make([]Bug, len(names))
	for i, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bugs[i], err = parse(string(text)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		bugs[i].Name = strings.TrimSuffix(filepath.Base(name), ".txt")
	}
	return bugs
}

// plant returns the files that the bug changes, as they are with it. An error means that
// the product has changed and the bug with it has to.
func (b *Bug) plant(root string) (map[string]string, error) {
	files := make(map[string]string)
	for _, e := range b.edits {
		if err := e.apply(root, files); err != nil {
			return nil, e.wrap(err)
		}
	}
	return files, nil
}

// compile returns the test binary of the package in the working directory.
func compile(t testing.TB, overlay string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "planted.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "-overlay", overlay, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// Overlay returns a file for go build -overlay, which builds the product with the bug in it.
func (b *Bug) Overlay(t testing.TB) string {
	t.Helper()
	files, err := b.plant(root)
	if err != nil {
		t.Fatalf("%s: %v", b.Name, err)
	}
	return overlay(t, files)
}

// overlay returns a file for go build -overlay with the texts of files.
func overlay(t testing.TB, files map[string]string) string {
	t.Helper()
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
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
