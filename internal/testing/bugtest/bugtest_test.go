package bugtest

import (
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// product is a package of two files, as the edits below want it.
var product = map[string]string{
	"one.go": `package product

const most = 10

// add has a comment above the function, which is not an anchor.
func add(a, b int) int {
	if a > most { // the limit: it holds for both
		return 0
	}
	// The result is even,
	// or it is not.
	a = a + b

	switch a {
	// Nothing was added.
	case 0:
		return 1
	default:
		b = 0 // the rest
	}
	return a + b
}
`,
	"two.go": `package product

import "fmt"

type box[T any] struct{ list []T }

func (b *box[T]) put(v T) {
	func() {
		fmt.Println()
	}() // called at once
	b.list = append(b.list, v)
	if len(b.list) > 3 {
		// Nothing comes behind this.
	}
}

func add2() int {
	return 1
}
`,
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "product"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, "product", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// lines is Go without its layout.
func lines(t *testing.T, text string) string {
	t.Helper()
	formatted, err := format.Source([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var all []string
	for line := range strings.Lines(string(formatted)) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return strings.Join(all, "\n")
}

// Each kind of change, at each kind of place. The file has new in the place of old then.
func TestEdits(t *testing.T) {
	t.Parallel()
	root := write(t, product)
	for _, tt := range []struct{ name, bug, file, old, new string }{
		{"before a statement", "in: product add\nat: The result is even\nbefore:\n\tb++\n", "one.go",
			"\t// The result is even,\n", "\tb++\n\t// The result is even,\n"},
		{"words on two lines", "in: product add\nat: even, or it\nafter:\n\tb++\n", "one.go", "a = a + b\n", "a = a + b\n\tb++\n"},
		{"on both sides", "in: product add\nat: The result is even\nbefore:\n\tb++\nafter:\n\tb--\n", "one.go",
			"\t// The result is even,\n\t// or it is not.\n\ta = a + b\n", "b++\n\t// The result is even,\n\t// or it is not.\n\ta = a + b\n\tb--\n"},
		{"instead of an if", "in: product add\nat: the limit\nreplace:\n\ta = 1\n", "one.go",
			"if a > most { // the limit: it holds for both\n\t\treturn 0\n\t}\n", "a = 1\n"},
		{"the head of an if", "in: product add\nat: the limit\nchange: a -> b\n", "one.go", "if a > most", "if b > most"},
		{"a case", "in: product add\nat: Nothing was added\ndelete:\n", "one.go", "\tcase 0:\n\t\treturn 1\n", ""},
		{"in a case", "in: product add\nat: Nothing was added\nafter:\n\ta++\n", "one.go", "return 1\n", "return 1\n\ta++\n"},
		{"on the line of a statement", "in: product add\nat: the rest\nreplace:\n\tb = 2\n", "one.go", "b = 0 // the rest", "b = 2\n// the rest"},
		{"an expression of the function", "in: product add\nchange: a > most -> a >= most\n", "one.go", "a > most", "a >= most"},
		{"a constant", "in: product most\nchange: 10 -> 11\n", "one.go", "10", "11"},
		{"at the beginning", "in: product box.put\nbefore:\n\treturn\n", "two.go", "(v T) {\n", "(v T) {\n\treturn\n"},
		{"a whole body", "in: product add2\nreplace:\n\treturn 2\n", "two.go", "return 1", "return 2"},
		{"no body", "in: product box.put\ndelete:\n\nin: product add2\nimport: fmt\n", "two.go",
			product["two.go"][strings.Index(product["two.go"], "\tfunc()"):strings.Index(product["two.go"], "}\n\nfunc add2")], ""},
		{"where a statement ends", "in: product box.put\nat: called at once\ndelete:\n", "two.go", "func() {\n\t\tfmt.Println()\n\t}()", ""},
		{"an import", "in: product add\nimport: fmt\n", "one.go", "package product\n", "package product\n\nimport \"fmt\"\n"},
	} {
		b, err := parse("# what\n" + tt.bug)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got, err := b.plant(root)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: got %d files, %v", tt.name, len(got), err)
			continue
		}
		want := strings.Replace(product[tt.file], tt.old, tt.new, 1)
		if got, want := lines(t, got["product/"+tt.file]), lines(t, want); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, want)
		}
	}
}

// A bug that fits nowhere, or in two places, is an error that says which, and not planted half.
func TestMisfitsAreFound(t *testing.T) {
	t.Parallel()
	twice := maps.Clone(product)
	twice["again.go"] = "package product\n\nfunc add2() {}\n"
	root := write(t, twice)
	for _, tt := range []struct{ bug, want string }{
		{"in: product nothing\ndelete:\n", "in product nothing: delete: the package does not declare it"},
		{"in: nowhere add\ndelete:\n", "in nowhere add: delete: the package does not declare it"},
		{"in: product put\ndelete:\n", "does not declare it"},
		{"in: product add2\ndelete:\n", "product/again.go and product/two.go both declare it"},
		{"in: product add\nat: no such words\ndelete:\n", `in product add: at "no such words": delete: 0 comments`},
		{"in: product add\nat: it\ndelete:\n", "2 comments"},
		{"in: product add\nat: is not an anchor\ndelete:\n", "0 comments"},
		{"in: product box.put\nat: Nothing comes behind\ndelete:\n", "at no statement"},
		{"in: product add\nchange: c -> b\n", `"c" is there 0 times`},
		{"in: product add\nchange: a -> b\n", `"a" is there 5 times`},
		{"in: product add\nat: the limit\nchange: 0 -> 1\n", `"0" is there 0 times`},
		{"in: product add\nchange: a + -> b\n", `"a +"`},
		{"in: product most\nchange: 10 -> 10\n", "changes nothing"},
	} {
		b, err := parse("# what\n" + tt.bug)
		if err != nil {
			t.Fatalf("%s: %v", tt.bug, err)
		}
		if files, err := b.plant(root); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %d files and %v, want an error with %q", tt.bug, len(files), err, tt.want)
		}
	}
}

func TestBadBugsAreFound(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "# what\n", "in: a b\ndelete:\n", "# what\ndelete:\n", "# what\nin: a\ndelete:\n", "# what\nin: a b\n",
		"# what\nin: a b\nbefore:\n", "# what\nin: a b\ndelete:\n\tx\n", "# what\nin: a b\nbefore: x\n\ty\n", "# what\nin: a b\nat:\ndelete:\n",
		"# what\nin: a b\nchange: x\n", "# what\nin: a b\nchange: x -> y\n\tz\n", "# what\nin: a b\nimport:\n", "# what\nin: a b\n\tx\n",
		"# what\nin: a b\nforget:\n", "# what\nin: a b\ndelete:\nx\n", "# what\n# what\nin: a b\ndelete:\n",
		"# what\nfound:\nin: a b\ndelete:\n", "# what\nfound: x\nfound: y\nin: a b\ndelete:\n",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("is taken for a bug: %q", text)
		}
	}
}
