package coverage

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// wrappers are the functions that only add text to an error.
var wrappers = []string{"away", "unavailable", "atIndex"}

// onlyErrors reports whether the statements between two places only make or return an error.
func onlyErrors(fn *ast.FuncDecl, from, to token.Pos) bool {
	var all, errors int
	failed := false // whether the last condition around was that there is an error
	ast.Inspect(fn, func(n ast.Node) bool {
		if n == nil || n.End() <= from || n.Pos() >= to {
			return false
		}
		if i, ok := n.(*ast.IfStmt); ok && i.Body.Pos() <= from && from <= i.Body.End() {
			failed = asksForError(i.Cond)
		}
		s, ok := n.(ast.Stmt)
		if _, list := n.(*ast.BlockStmt); !ok || list || n.Pos() < from {
			return true
		}
		all++
		if makesError(s, failed) {
			errors++
		}
		return false
	})
	return all > 0 && all == errors
}

// asksForError reports whether the condition holds only with an error.
func asksForError(cond ast.Expr) bool {
	both, ok := cond.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	if both.Op == token.LAND {
		return asksForError(both.X) || asksForError(both.Y)
	}
	nothing, _ := both.Y.(*ast.Ident)
	return both.Op == token.NEQ && isErr(both.X) && nothing != nil && nothing.Name == "nil"
}

func isErr(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "err"
}

// makesError reports whether a statement returns an error, or adds one to others. After failed, err is
// known to be one.
func makesError(s ast.Stmt, failed bool) bool {
	switch s := s.(type) {
	case *ast.ReturnStmt:
		if len(s.Results) == 0 {
			return false
		}
		last := s.Results[len(s.Results)-1]
		return isError(last) || failed && isErr(last)
	case *ast.AssignStmt:
		add, ok := s.Rhs[0].(*ast.CallExpr)
		return ok && calls(add, "append") && len(add.Args) == 2 && isError(add.Args[1])
	}
	return false
}

// isError reports whether an expression is an error, judged by itself.
func isError(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return len(e.Name) > 3 && strings.EqualFold(e.Name[:3], "err") && e.Name != "errs"
	case *ast.SelectorExpr:
		return len(e.Sel.Name) > 3 && strings.HasPrefix(e.Sel.Name, "Err")
	case *ast.UnaryExpr:
		return isError(e.X)
	case *ast.CompositeLit:
		t, ok := e.Type.(*ast.Ident)
		return ok && strings.HasSuffix(t.Name, "Error")
	case *ast.CallExpr:
		return calls(e, "fmt.Errorf", "errors.New") || calls(e, wrappers...)
	}
	return false
}

func calls(c *ast.CallExpr, names ...string) bool {
	switch fn := c.Fun.(type) {
	case *ast.Ident:
		return slices.Contains(names, fn.Name)
	case *ast.SelectorExpr:
		pkg, ok := fn.X.(*ast.Ident)
		return ok && slices.Contains(names, pkg.Name+"."+fn.Sel.Name)
	}
	return false
}
