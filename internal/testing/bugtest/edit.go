package bugtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A source is a file of the product, and the declaration that an edit is about.
type source struct {
	name string // seen from the root
	text string
	set  *token.FileSet
	file *ast.File
	body ast.Node // a function's, or the whole declaration of a constant or a variable
}

// apply makes the edit's change in files, to which it adds the file that it changes.
func (e *edit) apply(root string, files map[string]string) error {
	s, err := find(root, files, e.pkg, e.fn)
	if err != nil {
		return err
	}
	if e.do == "import" {
		files[s.name] = s.importing(e.new)
		return nil
	}
	place, before := s.body, s.body.Pos()
	if e.at != "" {
		if place, before, err = s.anchored(e.at); err != nil {
			return err
		}
	}
	from, to, above := s.offset(place.Pos()), s.offset(place.End()), s.offset(before)
	if _, ok := place.(*ast.BlockStmt); ok { // without its braces
		from, to, above = from+1, to-1, from+1
	}
	text, code := s.text, "\n"+e.new+"\n"
	switch e.do {
	case "before":
		text = text[:above] + code + text[above:]
	case "after":
		text = text[:to] + code + text[to:]
	case "replace", "delete":
		text = text[:from] + code + text[to:]
	case "change":
		x, err := findExpr(place, e.old)
		if err != nil {
			return err
		}
		text = text[:s.offset(x.Pos())] + e.new + text[s.offset(x.End()):]
	}
	if text == s.text {
		return errors.New("it changes nothing")
	}
	files[s.name] = text
	return nil
}

func (s *source) offset(p token.Pos) int { return s.set.Position(p).Offset }

// importing is the file with one import more.
func (s *source) importing(path string) string {
	for _, spec := range s.file.Imports {
		if spec.Path.Value == strconv.Quote(path) {
			return s.text
		}
	}
	at := s.offset(s.file.Name.End())
	return s.text[:at] + "\n\nimport " + strconv.Quote(path) + "\n" + s.text[at:]
}

// find finds the file that declares name in a package: as it is in files, else on disk.
func find(root string, files map[string]string, pkg, name string) (*source, error) {
	names, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	var found *source
	for _, path := range names {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		s := &source{name: filepath.ToSlash(filepath.Join(pkg, filepath.Base(path))), set: token.NewFileSet()}
		text, ok := files[s.name]
		if !ok {
			is, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			text = string(is)
		}
		s.text = text
		if s.file, err = parser.ParseFile(s.set, s.name, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		if s.body = declared(s.file, name); s.body == nil {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%s and %s both declare it", found.name, s.name)
		}
		found = s
	}
	if found == nil {
		return nil, errors.New("the package does not declare it")
	}
	return found, nil
}

// declared is the body of the function of that name, or the declaration of a constant or a
// variable; nil where the file has none.
func declared(file *ast.File, name string) ast.Node {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil && funcName(d) == name {
				return d.Body
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && v.Names[0].Name == name {
					return v
				}
			}
		}
	}
	return nil
}

// funcName names a method after its type: loop.launch.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	recv, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*"), "[")
	return recv + "." + d.Name.Name
}

// anchored finds the statement that the comment with these words is about, and where code
// before it goes: above the comment, which stays about the same statement.
func (s *source) anchored(words string) (about ast.Stmt, before token.Pos, err error) {
	c, err := s.comment(words)
	if err != nil {
		return nil, 0, err
	}
	line := func(p token.Pos) int { return s.set.Position(p).Line }
	var begins, ends, below ast.Stmt
	ast.Inspect(s.body, func(n ast.Node) bool {
		stmt, ok := n.(ast.Stmt)
		if _, block := n.(*ast.BlockStmt); !ok || block {
			return true
		}
		// The first that is found is the outermost.
		switch {
		case stmt.Pos() > c.End():
			if below == nil || stmt.Pos() < below.Pos() {
				below = stmt
			}
		case line(stmt.Pos()) == line(c.Pos()) && begins == nil:
			begins = stmt
		case line(stmt.End()) == line(c.Pos()) && ends == nil && !isCase(stmt):
			ends = stmt
		}
		return true
	})
	switch {
	case begins != nil:
		return begins, begins.Pos(), nil
	case ends != nil:
		return ends, ends.Pos(), nil
	case below != nil && strings.TrimSpace(s.text[s.offset(c.End()):s.offset(below.Pos())]) == "":
		return below, c.Pos(), nil
	}
	return nil, 0, errors.New("the comment is at no statement")
}

// comment finds the one comment in the function that has these words.
func (s *source) comment(words string) (*ast.CommentGroup, error) {
	var found []*ast.CommentGroup
	for _, c := range s.file.Comments {
		inside := s.body.Pos() <= c.Pos() && c.End() <= s.body.End()
		if inside && strings.Contains(strings.Join(strings.Fields(c.Text()), " "), words) {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d comments have these words, not one", len(found))
	}
	return found[0], nil
}

// isCase knows what ends where its last statement does.
func isCase(s ast.Stmt) bool {
	switch s.(type) {
	case *ast.CaseClause, *ast.CommClause:
		return true
	}
	return false
}

// findExpr finds the one expression that is written as old.
func findExpr(place ast.Node, old string) (ast.Expr, error) {
	want, err := parser.ParseExpr(old)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", old, err)
	}
	text := types.ExprString(want)
	below := blocks(place)
	var found []ast.Expr
	ast.Inspect(place, func(n ast.Node) bool {
		for _, b := range below {
			if n == b {
				return false
			}
		}
		if x, ok := n.(ast.Expr); ok && types.ExprString(x) == text {
			found = append(found, x)
		}
		return true
	})
	if len(found) != 1 {
		return nil, fmt.Errorf("%q is there %d times, not once", old, len(found))
	}
	return found[0], nil
}

// blocks are the statements below the head of one.
func blocks(place ast.Node) (below []ast.Node) {
	var list []ast.Stmt
	switch s := place.(type) {
	case *ast.IfStmt:
		list = []ast.Stmt{s.Body, s.Else}
	case *ast.ForStmt:
		list = []ast.Stmt{s.Body}
	case *ast.RangeStmt:
		list = []ast.Stmt{s.Body}
	case *ast.SwitchStmt:
		list = []ast.Stmt{s.Body}
	case *ast.TypeSwitchStmt:
		list = []ast.Stmt{s.Body}
	case *ast.CaseClause:
		list = s.Body
	case *ast.CommClause:
		list = s.Body
	}
	for _, s := range list {
		below = append(below, s)
	}
	return below
}
