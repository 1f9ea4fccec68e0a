package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"
)

const readiness = "docs/reference/readiness.md"

// reasons are the functions, and the variables, whose texts /readyz shows: by directory.
var reasons = map[string][]string{
	"internal/app":          {"degraded", "Fold"},
	"internal/httpserver":   {"ErrStopping"},
	"internal/indexer":      {"errBegins", "look"},
	"internal/clock":        {"Check"},
	"publisher":             {"Ready"},
	"aggregator":            {"errUnchecked", "errOutdated", "reason", "degraded", "Ready"},
	"reader":                {"Ready", "askBoth", "askStore"},
	"backend":               {"Ready"},
	"backend/gcppubsub":     {"err", "probe"},
	"backend/nats":          {"probe"},
	"backend/pebble":        {"guard.look"},
	"backend/postgres/rows": {"errStandby"},
	"store/engine":          {"ErrNotCounted"},
	"store/protocol":        {"metaOf", "compare"},
}

// Each reason that /readyz can give is explained. Texts of a database, a disk or a network are not in
// the code, and so not here.
func TestReadinessReference(t *testing.T) {
	t.Parallel()
	page := strings.Join(strings.Fields(read(t, readiness)), " ")
	found := map[string]int{}
	for _, s := range sources(t) {
		names := reasons[path.Dir(s.name)]
		if s.isTest() || names == nil {
			continue
		}
		for _, name := range names {
			for _, node := range declared(s.file, name) {
				for _, piece := range pieces(node) {
					found[path.Dir(s.name)+" "+name]++
					if !strings.Contains(page, piece) {
						t.Errorf("%s: %s says %q, which is not in %s", s.name, name, piece, readiness)
					}
				}
			}
		}
	}
	for dir, names := range reasons {
		for _, name := range names {
			if found[dir+" "+name] == 0 {
				t.Errorf("%s in %s has no text: if the reasons of /readyz are elsewhere now, name that place in this test", name, dir)
			}
		}
	}
}

// declared are the functions, methods and package variables of a name, which may begin with the
// type of a method: guard.look.
func declared(file *ast.File, name string) []ast.Node {
	var all []ast.Node
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == name || d.Recv != nil && receiver(d)+"."+d.Name.Name == name {
				all = append(all, d)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && v.Names[0].Name == name {
					all = append(all, v)
				}
			}
		}
	}
	return all
}

func receiver(f *ast.FuncDecl) string {
	if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok {
		return fmt.Sprint(star.X)
	}
	return fmt.Sprint(f.Recv.List[0].Type)
}

var verbs = regexp.MustCompile(`%[.0-9]*[a-z]`)

// pieces are the parts of the texts in node between the values that are put into them.
func pieces(node ast.Node) []string {
	var all []string
	ast.Inspect(node, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		if !ok {
			return true
		}
		if value, ok := text(l); ok {
			for _, piece := range verbs.Split(value, -1) {
				if piece = strings.Trim(piece, " :;,()\""); strings.Contains(piece, " ") {
					all = append(all, piece)
				}
			}
		}
		return true
	})
	return all
}
