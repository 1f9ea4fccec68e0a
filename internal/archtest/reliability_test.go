package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const reliability = "docs/reliability.md"

// What docs/reliability.md counts up is what there is: planted mistakes and fuzz targets.
func TestReliabilityCountsUp(t *testing.T) {
	t.Parallel()
	text := read(t, reliability)
	for _, tc := range []struct{ dir, says string }{
		{"internal/sim/testdata/bugs", `All (\d+) were: `},
		{"backend/pebble/testdata/bugs", `plants (\d+) mistakes in the store`},
	} {
		files, err := os.ReadDir(filepath.Join(root, tc.dir))
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(tc.says).FindStringSubmatch(text); m == nil || m[1] != strconv.Itoa(len(files)) {
			t.Errorf("%s says %q, %s has %d", reliability, m, tc.dir, len(files))
		}
	}
	_, table, _ := strings.Cut(text, "| planted bug |")
	table, _, _ = strings.Cut(table, "\n\n")
	files, err := filepath.Glob(filepath.Join(root, "internal/sim/testdata/bugs/*.txt"))
	if err != nil || strings.Count(table, "\n") != len(files)+1 { // and the line under the head
		t.Errorf("the table of planted bugs has %d rows, and there are %d; %v", strings.Count(table, "\n")-1, len(files), err)
	}
	for _, file := range files {
		_, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".txt"), "-")
		if row := "\n| " + strings.ReplaceAll(name, "-", " ") + " |"; !strings.Contains(table, row) {
			t.Errorf("the table of planted bugs has no row %q", row)
		}
	}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && s.isTest() && strings.HasPrefix(f.Name.Name, "Fuzz") && !strings.Contains(text, f.Name.Name+" |") {
				t.Errorf("%s does not say what %s holds (%s)", reliability, f.Name.Name, s.name)
			}
		}
	}
}
