package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// list adds the mutants that remove a statement of a block, and those that swap two.
func (f *finder) list(stmts []ast.Stmt) {
	for i, s := range stmts {
		if kind := f.removal(s); kind != "" {
			f.add(f.head(s), s.Pos(), s.Pos(), s.End(), kind, "", s)
		}
		if i+1 < len(stmts) && f.ordered(s, stmts[i+1]) {
			next := stmts[i+1]
			between := string(f.source.text[f.offset(s.End()):f.offset(next.Pos())])
			f.add(f.head(s)+"; "+f.head(next), s.Pos(), s.Pos(), next.End(), "swap with next", f.textOf(next)+between+f.textOf(s), nil)
		}
	}
}

// removal returns the kind of mutant that removes s, or "" if there is none.
func (f *finder) removal(s ast.Stmt) string {
	switch s := s.(type) {
	case *ast.ExprStmt:
		c, ok := s.X.(*ast.CallExpr)
		switch {
		case !ok:
			return ""
		case f.callee(c) == "builtin.panic":
			return "remove call"
		case f.silent(c), f.callee(c) == "(*bytes.Buffer).Grow", f.callee(c) == "(*strings.Builder).Grow":
			return ""
		case f.callee(c) == "builtin.delete":
			return "remove delete"
		}
		return "remove call"
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE || allBlank(s.Lhs) || f.appendsToItself(s) {
			return ""
		}
		return "remove assignment"
	case *ast.DeferStmt:
		return "remove defer"
	case *ast.SendStmt:
		return "remove send"
	}
	return ""
}

func allBlank(exprs []ast.Expr) bool {
	return !slices.ContainsFunc(exprs, func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return !ok || id.Name != "_"
	})
}

// appendsToItself recognises x = append(x, y), which "drop append" removes.
func (f *finder) appendsToItself(s *ast.AssignStmt) bool {
	if len(s.Lhs) != 1 || len(s.Rhs) != 1 {
		return false
	}
	c, ok := s.Rhs[0].(*ast.CallExpr)
	return ok && f.callee(c) == "builtin.append" && len(c.Args) > 1 && f.textOf(c.Args[0]) == f.textOf(s.Lhs[0])
}

// ifStmt negates the condition, and empties a body that leaves early.
func (f *finder) ifStmt(s *ast.IfStmt) {
	cond := ast.Unparen(s.Cond)
	from, to := s.Cond.Pos(), s.Cond.End()
	switch c := cond.(type) {
	case *ast.UnaryExpr:
		f.add(f.head(s), from, from, to, "negate if", f.textOf(c.X), nil)
	case *ast.BinaryExpr:
		if c.Op != token.EQL && c.Op != token.NEQ { // turned already
			f.add(f.head(s), from, from, to, "negate if", "!("+f.textOf(cond)+")", nil)
		}
	default:
		f.add(f.head(s), from, from, to, "negate if", "!"+f.textOf(s.Cond), nil)
	}
	if n := len(s.Body.List); n > 0 && leaves(s.Body.List[n-1]) {
		f.add(f.head(s), s.Pos(), s.Body.Lbrace+1, s.Body.Rbrace, "empty if", "", s.Body)
	}
}

func leaves(s ast.Stmt) bool {
	switch s.(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// blanks assigns names to the blank identifier that only out uses: variables of functions, and names of
// imported packages.
func (f *finder) blanks(out ast.Node) string {
	if isNil(out) {
		return ""
	}
	var names []string
	ast.Inspect(out, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false // a name that out itself defines is unknown outside
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				if _, ok := f.info.Uses[x].(*types.PkgName); ok {
					if _, ok := f.info.Uses[n.Sel].(*types.TypeName); !ok {
						names = append(names, f.textOf(n))
					}
					return false
				}
			}
		case *ast.Ident:
			if v, ok := f.info.Uses[n].(*types.Var); ok && !v.IsField() && v.Pkg() == f.types && v.Parent() != f.types.Scope() && !within(v.Pos(), out) {
				names = append(names, n.Name)
			}
		}
		return true
	})
	slices.Sort(names)
	var b strings.Builder
	for _, name := range slices.Compact(names) {
		fmt.Fprintf(&b, "; _ = %s", name)
	}
	return b.String()
}

func within(p token.Pos, n ast.Node) bool { return n.Pos() <= p && p < n.End() }
