package bugtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hostFile has each form of a function that a copy is called from.
const hostFile = `package main

import "os"

type box[T any] struct{ list []T }

func (*box[T]) size(int, ...T) int { return 1 }

func pair[A, B any](a A, _ B) (A, int) { return a, 2 }

const three = 3

func main() {
	var b box[string]
	_, two := pair("", 0)
	print(b.size(0, "x"), two, three, "\n")
	_ = os.Args
}

func print(values ...any) {
	for _, v := range values {
		write(v)
	}
}

func write(v any) {
	switch v := v.(type) {
	case int:
		os.Stdout.Write([]byte{'0' + byte(v)})
	case string:
		os.Stdout.WriteString(v)
	}
}
`

// A program with all bugs runs with the bug that its environment names, or with none.
func TestTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	var bugs []Bug
	for _, text := range []string{
		"# a\nin: . box.size\nchange: 1 -> 4",
		"# b\nin: . box.size\nchange: 1 -> 5\nin: . pair\nchange: 2 -> 6",
		"# c\nin: . main\nimport: fmt\nreplace:\n\tfmt.Println(7)\n",
		"# d\nin: . three\nchange: 3 -> 8",
	} {
		b, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		b.Name = b.What
		bugs = append(bugs, b)
	}
	before := root
	defer func() { root = before }()
	root = t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("main.go", hostFile)
	put("go.mod", "module host\n\ngo 1.26\n")
	files, alone := together(t, bugs)
	if len(alone) != 1 || !alone["d"] {
		t.Errorf("alone are %v, want d", alone)
	}
	for name, text := range files {
		put(name, text)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "host", ".")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, files["main.go"])
	}
	for bug, want := range map[string]string{"": "123", "a": "423", "b": "563", "c": "7"} {
		host := exec.CommandContext(t.Context(), filepath.Join(root, "host"))
		host.Env = []string{plantedEnv + "=" + bug}
		out, err := host.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("with bug %q it prints %q (%v), want %q", bug, got, err, want)
		}
	}
}
