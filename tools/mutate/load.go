package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A pkg is a package that is changed, parsed and type-checked.
type pkg struct {
	dir   string // relative to the module: "aggregator"
	files []*source
	fset  *token.FileSet
	info  *types.Info
	types *types.Package
	conf  types.Config
	path  string
}

// A source is a file of a package that is changed.
type source struct {
	name string // relative to the module: "aggregator/plan.go"
	abs  string
	text []byte
	file *ast.File
	// chosen is false for files that are only needed to type-check the others.
	chosen bool
}

type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
	DepOnly                 bool
}

// load parses and type-checks the packages that args name, or whose files they name. It reads imports
// from the compiler's export data, as go list returns it.
func load(ctx context.Context, dir string, args []string) ([]*pkg, error) {
	var patterns []string
	chosen := map[string]bool{}       // absolute file names
	byFile := map[string]bool{}       // directories in which only chosen files count
	whole, err := packages(dir, args) // patterns without files
	if err != nil {
		return nil, err
	}
	for _, a := range args {
		if strings.HasSuffix(a, ".go") {
			abs := filepath.Join(dir, a)
			if _, err := os.Stat(abs); err != nil {
				return nil, err
			}
			chosen[abs], byFile[filepath.Dir(abs)] = true, true
			patterns = append(patterns, "./"+filepath.Dir(filepath.Clean(a)))
		}
	}
	listed, err := goList(ctx, dir, append(patterns, whole...))
	if err != nil {
		return nil, err
	}
	inWhole := map[string]bool{}
	if len(whole) > 0 && len(patterns) > 0 {
		l, err := goList(ctx, dir, whole)
		if err != nil {
			return nil, err
		}
		for _, p := range l {
			inWhole[p.Dir] = !p.DepOnly
		}
	}
	exports := map[string]string{}
	for _, p := range listed {
		exports[p.ImportPath] = p.Export
	}
	var pkgs []*pkg
	for _, l := range listed {
		if l.DepOnly {
			continue
		}
		p, err := l.parse(dir, exports)
		if err != nil {
			return nil, err
		}
		for _, s := range p.files {
			s.chosen = (!byFile[l.Dir] || inWhole[l.Dir] || chosen[s.abs]) && !ast.IsGenerated(s.file)
			delete(chosen, s.abs)
		}
		pkgs = append(pkgs, p)
	}
	for abs := range chosen {
		return nil, fmt.Errorf("%s is not a file of its package on this platform, or a test", abs)
	}
	slices.SortFunc(pkgs, func(a, b *pkg) int { return strings.Compare(a.dir, b.dir) })
	return pkgs, nil
}

// packages replaces files in args by their directories, as go list needs them.
func packages(dir string, args []string) ([]string, error) {
	var patterns []string
	for _, a := range args {
		if strings.HasSuffix(a, ".go") {
			continue
		}
		d := filepath.Clean(strings.TrimSuffix(a, "..."))
		if _, err := os.Stat(filepath.Join(dir, d)); err != nil {
			return nil, fmt.Errorf("neither a file nor a package of %s: %w", dir, err)
		}
		p := "./" + d
		if strings.HasSuffix(a, "...") {
			p += "/..."
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

func goList(ctx context.Context, dir string, patterns []string) ([]listedPackage, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles,DepOnly"}, patterns...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("go list: %w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, err
	}
	var all []listedPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}

func (l listedPackage) parse(dir string, exports map[string]string) (*pkg, error) {
	if len(l.CgoFiles) > 0 {
		return nil, fmt.Errorf("%s has cgo files: they cannot be type-checked here", l.ImportPath)
	}
	p := &pkg{path: l.ImportPath, fset: token.NewFileSet()}
	var err error
	if p.dir, err = filepath.Rel(dir, l.Dir); err != nil {
		return nil, err
	}
	for _, name := range l.GoFiles {
		s := &source{abs: filepath.Join(l.Dir, name), name: filepath.ToSlash(filepath.Join(p.dir, name))}
		if s.text, err = os.ReadFile(s.abs); err != nil {
			return nil, err
		}
		if s.file, err = parser.ParseFile(p.fset, s.name, s.text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		p.files = append(p.files, s)
	}
	p.conf.Importer = importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})
	p.info = &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Uses:  map[*ast.Ident]types.Object{},
		Defs:  map[*ast.Ident]types.Object{},
	}
	p.types, err = p.conf.Check(p.path, p.fset, p.asts(nil, nil), p.info)
	return p, err
}

// asts returns the package's files, with replaced in the place of s.
func (p *pkg) asts(s *source, replaced *ast.File) []*ast.File {
	files := make([]*ast.File, len(p.files))
	for i, f := range p.files {
		files[i] = f.file
		if f == s {
			files[i] = replaced
		}
	}
	return files
}

// compiles reports whether the package type-checks with text in the place of s's text.
func (p *pkg) compiles(s *source, text []byte) bool {
	file, err := parser.ParseFile(p.fset, s.name, text, parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	defer p.fset.RemoveFile(p.fset.File(file.FileStart))
	_, err = p.conf.Check(p.path, p.fset, p.asts(s, file), nil)
	return err == nil
}
