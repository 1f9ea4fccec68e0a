package main

import (
	"go/ast"
	"go/types"
	"strings"
)

// funcName returns a function's name, with its type for a method, as in Planner.add; "" for other
// declarations.
func funcName(d ast.Decl) string {
	fn, ok := d.(*ast.FuncDecl)
	if !ok {
		return ""
	}
	if fn.Recv == nil || len(fn.Recv.List) != 1 {
		return fn.Name.Name
	}
	recv, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*"), "[")
	return recv + "." + fn.Name.Name
}

// parents maps each node of a file to the node around it.
func parents(file *ast.File) map[ast.Node]ast.Node {
	all := map[ast.Node]ast.Node{}
	var above []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return true
		}
		if len(above) > 0 {
			all[n] = above[len(above)-1]
		}
		above = append(above, n)
		return true
	})
	return all
}

// head is n in one line, without comments and without the statements in it.
func (f *finder) head(n ast.Node) string {
	from, to := n.Pos(), n.End()
	switch n := n.(type) {
	case *ast.RangeStmt:
		to = n.Body.Pos()
	case *ast.IfStmt:
		to = n.Body.Pos()
	case *ast.ForStmt:
		to = n.Body.Pos()
	case *ast.SwitchStmt:
		to = n.Body.Pos()
	case *ast.CaseClause:
		to = n.Colon
	}
	var text []byte
	for _, c := range f.source.file.Comments {
		if from <= c.Pos() && c.End() <= to {
			text = append(text, f.source.text[f.offset(from):f.offset(c.Pos())]...)
			from = c.End()
		}
	}
	return show(append(text, f.source.text[f.offset(from):f.offset(to)]...))
}
