package coverage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const code = `package p

func (t *T[K]) one(n int) error {
	if n == 1 { // a comment
		n++
	}
	if n == 2 {
		n++
	}
	if err := call(); err != nil {
		return err
	}
	if n > 5 {
		return fmt.Errorf("%d", n)
	}
	return call()
}
`

// profiles is the coverage of the code by two packages' tests.
const profiles = `mode: set
github.com/countmill/countmill/p/p.go:3.35,4.12 1 1
github.com/countmill/countmill/p/p.go:4.12,6.3 1 0
github.com/countmill/countmill/p/p.go:7.2,7.12 1 1
github.com/countmill/countmill/p/p.go:7.12,9.3 1 0
mode: set
github.com/countmill/countmill/p/p.go:7.12,9.3 1 3
github.com/countmill/countmill/p/p.go:10.2,10.34 1 1
github.com/countmill/countmill/p/p.go:10.34,12.3 1 0
github.com/countmill/countmill/p/p.go:13.2,13.11 1 1
github.com/countmill/countmill/p/p.go:13.11,15.3 1 0
github.com/countmill/countmill/p/p.go:16.2,16.15 1 0
`

// fixture returns the blocks of the code, and a list of those lines.
func fixture(t *testing.T, lines ...string) ([]*block, []explanation) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"p/p.go": code, "profile": profiles, "list": "# for people\n" + strings.Join(lines, "\n")} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := readExplained(filepath.Join(dir, "list"))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, dir, filepath.Join(dir, "profile")), list
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const (
		first = "p T.one: if n == 1 { n++ }"
		last  = "p T.one: return call()"
	)
	explained := []string{first + " | never | why", last + " | never | why"}
	for name, c := range map[string]struct {
		lines, want []string // the beginnings of problems
		covered     int
	}{
		"all explained":           {explained, nil, 5},
		"covered by chance":       {append(explained, "p T.one: if n == 2 { n++ } | sometimes | why"), nil, 4},
		"not in the list":         {explained[:1], []string{"p/p.go:16: no test covers it; add one, or a line: " + last + " | never"}, 5},
		"no such code":            {append(explained, "p T.one: n-- | never | why"), []string{"line 4: there is no code p T.one: n--"}, 5},
		"no such function":        {append(explained, "p T.two: n++ | sometimes | why"), []string{"line 4: there is no code p T.two: n++"}, 5},
		"covered":                 {append(explained, "p T.one: if n == 2 { n++ } | never | why"), []string{"p/p.go:7: a test covers it; delete line 4"}, 4},
		"an error text":           {append(explained, `p T.one: if n > 5 { return fmt.Errorf("%d", n) } | never | why`), []string{"line 4: an error text needs no explanation"}, 5},
		"explained a second time": {append(explained, explained[1]), []string{"line 4: p T.one: return call() was explained before"}, 5},
	} {
		r := compare(fixture(t, c.lines...))
		if r.statements != 7 || r.covered != c.covered {
			t.Errorf("%s: %d of %d statements are covered, want %d of 7", name, r.covered, r.statements, c.covered)
		}
		if !slices.EqualFunc(r.problems, c.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", name, r.problems, c.want)
		}
	}
}

func TestSameCodeIsNumbered(t *testing.T) {
	t.Parallel()
	blocks := []*block{{dir: "p", code: "n++", nth: 1, of: 2, statements: 1}, {dir: "p", code: "n++", nth: 2, of: 2, statements: 1}}
	r := compare(blocks, []explanation{{name: "p#2: n++", often: never, why: "why"}})
	if len(r.problems) != 1 || !strings.Contains(r.problems[0], "p#1: n++") {
		t.Errorf("got %q, want the first to have no explanation", r.problems)
	}
}

func TestBadLinesAreRefused(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"p: n++", "p: n++ | never", "p: n++ | often | why", "p: n++ | never | "} {
		if _, err := parseExplanation(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}
