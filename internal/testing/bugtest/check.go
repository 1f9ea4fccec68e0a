package bugtest

import (
	"go/ast"
	"go/build"
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

// Check reports bugs of the package in the working directory that can no longer be planted, or break
// the build. Compiling everything would take minutes, so Check only type-checks the packages with a
// bug: with all bugs together. If that fails, it checks one bug after the other, so that the message
// names it.
func Check(t *testing.T) {
	t.Parallel()
	bugs := Read(t, all)
	files, alone := together(t, bugs)
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", exported(t, dirs(files)))
	check := func(files map[string]string) error {
		for _, dir := range dirs(files) {
			if err := typeCheck(set, imports, dir, files); err != nil {
				return err
			}
		}
		return nil
	}
	problem := check(files)
	for _, b := range bugs {
		if problem == nil && !alone[b.Name] {
			continue
		}
		files, err := b.plant(root)
		if err == nil {
			err = check(files)
		}
		if err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	if problem != nil {
		t.Errorf("all bugs together: %v", problem)
	}
	for _, b := range bugs {
		if b.Found != "" && !b.hasTest() {
			t.Errorf("%s: neither this package nor one that it changes has the test %s", b.Name, b.Found)
		}
	}
}

// hasTest reports whether the test that has to find the bug exists.
func (b *Bug) hasTest() bool {
	name, _, _ := strings.Cut(b.Found, "/")
	dirs := []string{"."}
	for _, e := range b.edits {
		dirs = append(dirs, filepath.Join(root, e.pkg))
	}
	for _, dir := range dirs {
		files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "\nfunc "+name+"(") {
				return true
			}
		}
	}
	return false
}

// dirs are the packages of files.
func dirs(files map[string]string) []string {
	seen := make(map[string]struct{})
	for file := range files {
		seen[filepath.Dir(file)] = struct{}{}
	}
	return slices.Sorted(maps.Keys(seen))
}

// exported finds the compiler's export data of what packages import.
func exported(t testing.TB, dirs []string) importer.Lookup {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, dir := range dirs {
		args = append(args, "./"+filepath.Join(root, dir))
	}
	out, err := exec.CommandContext(t.Context(), "go", args...).Output()
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
	for file := range files { // files that are not on the disk
		if name := filepath.Join(root, file); filepath.Dir(file) == dir && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var parsed []*ast.File
	for _, name := range names {
		if here, err := build.Default.MatchFile(filepath.Split(name)); strings.HasSuffix(name, "_test.go") || err == nil && !here {
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
