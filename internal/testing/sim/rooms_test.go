package sim

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// rooms has, for each part of a schedule, the parts that it may have in a field. Only World
// has them all.
var rooms = map[string][]string{
	"plan":            {"crowd", "contest"},
	"kernel":          {"plan", "callWatch"},
	"broker":          {"kernel", "busWatch"},
	"database":        {"kernel", "storeWatch"},
	"cacheServer":     {"kernel"},
	"processes":       {"kernel", "broker", "database", "cacheServer"},
	"callers":         {"kernel", "proc"},
	"neighbour":       {"callers", "proc"},
	"clients":         {"callers", "processes", "broker", "ledger"},
	"readClients":     {"callers", "processes", "totalOracle"},
	"pageClients":     {"callers", "processes"},
	"sequenceClients": {"callers", "processes"},
	"chores":          {"callers", "processes", "database"},
	"operator":        {"callers", "processes", "database", "oracles"},
	"race":            {"kernel", "clients", "broker", "database", "processes", "ledger", "totalOracle"},
	"leaps":           {"kernel", "broker", "database", "processes", "callers"},
	"oracles":         {"partOracle", "totalOracle", "ledger"},
	"partOracle":      {"kernel", "database", "broker"},
	"totalOracle":     {"kernel", "database"},
	"ledger":          {"kernel", "database", "totalOracle"},
	"callOracle":      {"kernel", "broker", "database"},
	"idleOracle":      {"processes"},
	"proc":            {"kernel"},
}

// No part of a schedule knows more of the others than it needs.
func TestRooms(t *testing.T) {
	t.Parallel()
	found := fieldTypes(t)
	parts := map[string]bool{"World": true, "busWatch": true, "storeWatch": true, "callWatch": true}
	for part, knows := range rooms {
		parts[part] = true
		for _, other := range knows {
			if !slices.Contains(found[part], other) {
				t.Errorf("%s has no %s any more: remove it from rooms", part, other)
			}
		}
	}
	for name, fields := range found {
		for _, other := range fields {
			if name != "World" && parts[other] && (parts[name] || other == "World") && !slices.Contains(rooms[name], other) {
				t.Errorf("%s has a %s: it should not know it", name, other)
			}
		}
	}
}

// fieldTypes returns the types of the fields of each struct, without stars. It fails for each
// function of another type that knows the World.
func fieldTypes(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string][]string)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				if s, ok := n.(*ast.TypeSpec); ok {
					if fields, ok := s.Type.(*ast.StructType); ok {
						found[s.Name.Name] = typesOf(fields.Fields)
					}
				}
				return true
			})
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || slices.Contains(typesOf(f.Recv), "World") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id.Name == "World" {
					t.Errorf("%s: %s.%s knows the World", name, typesOf(f.Recv), f.Name)
				}
				return true
			})
		}
	}
	return found
}

// typesOf returns the names of the fields' types, without stars.
func typesOf(fields *ast.FieldList) (names []string) {
	for _, f := range fields.List {
		typ := f.Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		if name, ok := typ.(*ast.Ident); ok {
			names = append(names, name.Name)
		}
	}
	return names
}
