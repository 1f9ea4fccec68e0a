package archtest

import (
	"go/ast"
	"strings"
	"testing"
)

// Each fuzz target says in its comment what holds for every input.
func TestFuzzTargetsAreDocumented(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && s.isTest() && strings.HasPrefix(f.Name.Name, "Fuzz") && f.Doc == nil {
				t.Errorf("%s has no comment, which says what holds (%s)", f.Name.Name, s.name)
			}
		}
	}
}
