package archtest

import (
	"go/ast"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const simulation = "docs/evidence/simulation.md"

// docs/evidence/simulation.md has the right numbers of planted bugs and fuzz targets.
func TestSimulationCountsUp(t *testing.T) {
	t.Parallel()
	text := read(t, simulation)
	for _, tc := range []struct{ bugs, says, table string }{
		{"internal/testing/sim/testdata/bugs", `All (\d+) were: `, "| planted bug | mean | most | found by |"},
		{"backend/pebble/testdata/bugs", `plants (\d+) mistakes in the store`, ""},
		{"backend/*/testdata/suitebugs", `plants (\d+) mistakes in\s+them`, "| planted in a store |"},
	} {
		files, err := filepath.Glob(filepath.Join(root, tc.bugs, "*.txt"))
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(tc.says).FindStringSubmatch(text); m == nil || m[1] != strconv.Itoa(len(files)) {
			t.Errorf("%s says %q, %s has %d", simulation, m, tc.bugs, len(files))
		}
		if tc.table != "" {
			checkRows(t, text, tc.table, files)
		}
	}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && s.isTest() && strings.HasPrefix(f.Name.Name, "Fuzz") && !strings.Contains(text, f.Name.Name+" |") {
				t.Errorf("%s does not say what %s holds (%s)", simulation, f.Name.Name, s.name)
			}
		}
	}
}

// checkRows checks that the table with that head has a row for each bug, and no others.
func checkRows(t *testing.T, text, head string, bugs []string) {
	t.Helper()
	_, table, _ := strings.Cut(text, head)
	table, _, _ = strings.Cut(table, "\n\n")
	if rows := strings.Count(table, "\n") - 1; rows != len(bugs) { // without the line under the head
		t.Errorf("the table %q has %d rows, and there are %d bugs", head, rows, len(bugs))
	}
	for _, file := range bugs {
		name := strings.TrimLeft(strings.TrimSuffix(filepath.Base(file), ".txt"), "0123456789-")
		if row := "\n| " + strings.ReplaceAll(name, "-", " ") + " |"; !strings.Contains(table, row) {
			t.Errorf("the table %q has no row %q", head, row)
		}
	}
}
