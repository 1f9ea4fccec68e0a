package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Nothing that a public package exports has a type of an internal package in it: no program outside
// the module could name that type.
func TestNoInternalTypeIsExported(t *testing.T) {
	t.Parallel()
	exports := exportData(t)
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	public := 0
	for path := range exports {
		if !isPublic(path) {
			continue
		}
		public++
		pkg, err := imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range internalTypes(pkg) {
			t.Error(problem)
		}
	}
	if public < 15 {
		t.Errorf("%d public packages were read only", public)
	}
}

func isPublic(path string) bool {
	below := strings.TrimPrefix(path+"/", module+"/")
	return below != path+"/" && !strings.Contains("/"+below, "/internal/") && !strings.HasPrefix(below, "cmd/") && !strings.HasPrefix(below, "examples/")
}

// exportData has the file of the compiler's export data of each package, and of their dependencies.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", module+"/...")
	cmd.Dir = root
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
}

// internalTypes names everything that the package exports with an internal type in it. Types of other packages are checked in their own
// package.
func internalTypes(pkg *types.Package) (found []string) {
	var walk func(t types.Type, at string)
	walk = func(t types.Type, at string) {
		if s, ok := t.(*types.Struct); ok {
			for f := range s.Fields() {
				switch inner, isStruct := f.Type().Underlying().(*types.Struct); {
				case f.Embedded() && !f.Exported() && isStruct:
					walk(inner, at+"."+f.Name())
				case f.Embedded() || f.Exported():
					walk(f.Type(), at+"."+f.Name())
				}
			}
			return
		}
		if text := types.TypeString(t, nil); strings.Contains(text, module+"/") && strings.Contains(text, "/internal/") {
			found = append(found, fmt.Sprintf("%s has an internal type in %s: take a public type, or keep the field to yourself", at, text))
		}
	}
	for _, name := range pkg.Scope().Names() {
		o, at := pkg.Scope().Lookup(name), pkg.Path()+"."+name
		if !o.Exported() {
			continue
		}
		named, isType := types.Unalias(o.Type()).(*types.Named)
		if of, ok := o.(*types.TypeName); !ok || of.IsAlias() || !isType {
			walk(types.Unalias(o.Type()), at)
			continue
		}
		walk(named.Underlying(), at)
		for m := range types.NewMethodSet(types.NewPointer(named)).Methods() {
			if m.Obj().Exported() {
				walk(m.Type(), at+"."+m.Obj().Name())
			}
		}
	}
	return found
}

func TestInternalTypesAreFound(t *testing.T) {
	t.Parallel()
	internal := types.NewPackage(module+"/internal/x", "x")
	hidden := types.NewNamed(types.NewTypeName(token.NoPos, internal, "T", nil), types.NewStruct(nil, nil), nil)
	field := func(name string, t types.Type, embedded bool) types.Type {
		return types.NewStruct([]*types.Var{types.NewField(token.NoPos, internal, name, t, embedded)}, nil)
	}
	takes := func(t types.Type) types.Type {
		return types.NewSignatureType(nil, nil, nil, types.NewTuple(types.NewParam(token.NoPos, nil, "", t)), nil, false)
	}
	for name, tc := range map[string]struct {
		t    types.Type
		want int
	}{
		"a field":               {field("F", types.NewPointer(hidden), false), 1},
		"a field of its own":    {field("f", hidden, false), 0},
		"an embedded field":     {field("t", field("F", hidden, false), true), 1},
		"a parameter":           {takes(hidden), 1},
		"a list of parameters":  {takes(types.NewSlice(hidden)), 1},
		"a function that takes": {takes(takes(types.NewMap(types.Typ[types.String], hidden))), 1},
		"a word":                {types.Typ[types.String], 0},
	} {
		pkg := types.NewPackage(module+"/p", "p")
		pkg.Scope().Insert(types.NewVar(token.NoPos, pkg, "V", tc.t))
		pkg.Scope().Insert(types.NewVar(token.NoPos, pkg, "v", hidden))
		if got := internalTypes(pkg); len(got) != tc.want {
			t.Errorf("%s: found %q, want %d", name, got, tc.want)
		}
	}
}
