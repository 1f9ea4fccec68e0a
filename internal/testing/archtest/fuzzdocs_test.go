package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

const testsPage = "docs/evidence/tests.md"

// docs/evidence/tests.md has the condition of each fuzz target.
func TestFuzzTargetsAreDocumented(t *testing.T) {
	t.Parallel()
	text := read(t, testsPage)
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && s.isTest() && strings.HasPrefix(f.Name.Name, "Fuzz") && !strings.Contains(text, f.Name.Name+" |") {
				t.Errorf("%s does not say what %s holds (%s)", testsPage, f.Name.Name, s.name)
			}
		}
	}
}
