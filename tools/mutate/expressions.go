package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// turned maps an operator to the one that replaces it.
var turned = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS,
	token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
}

// visit adds the mutants of n itself and reports whether to visit its children.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case ast.Expr:
		return f.expr(n)
	case *ast.IfStmt:
		f.noteErrors(n)
		f.ifStmt(n)
	case *ast.ForStmt:
		// The opposite direction only runs away.
		if n.Post != nil {
			for _, c := range []ast.Node{n.Init, n.Cond, n.Body} {
				if !isNil(c) {
					ast.Inspect(c, f.visit)
				}
			}
			return false
		}
	case *ast.IncDecStmt:
		f.turn(n, n.TokPos, n.Tok)
	case *ast.AssignStmt:
		if len(n.Lhs) == 1 && f.isNumber(n.Lhs[0]) {
			f.turn(n, n.TokPos, n.Tok)
		}
	case *ast.ReturnStmt:
		for _, e := range f.returned(n) {
			ast.Inspect(e, f.visit)
		}
		return false
	case *ast.BlockStmt:
		f.list(n.List)
	case *ast.CaseClause:
		f.list(n.Body)
	case *ast.CommClause:
		f.list(n.Body)
	}
	return true
}

// isNil recognises nil statements and expressions in an interface.
func isNil(n ast.Node) bool {
	switch n := n.(type) {
	case nil:
		return true
	case *ast.BlockStmt:
		return n == nil
	}
	return false
}

// expr adds the mutants of e itself and reports whether to visit its children.
func (f *finder) expr(e ast.Expr) bool {
	if tv := f.info.Types[e]; tv.Value != nil {
		f.constant(e, tv)
		return false
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if e.Op != token.ADD && e.Op != token.SUB || f.isNumber(e) {
			f.turn(e, e.OpPos, e.Op)
		}
	case *ast.CallExpr:
		return f.call(e)
	case *ast.ArrayType:
		return false
	}
	return true
}

// returned returns the results of a return that a test may check: not the 0 that comes with an error.
func (f *finder) returned(s *ast.ReturnStmt) []ast.Expr {
	if n := len(s.Results); n > 1 && f.isError(s.Results[n-1]) {
		return slices.DeleteFunc(slices.Clone(s.Results), func(e ast.Expr) bool {
			tv := f.info.Types[e]
			return tv.Value != nil || tv.IsNil()
		})
	}
	return s.Results
}

// isError reports whether e is certainly an error and not nil: an error that is made there, or one that
// the if around it found.
func (f *finder) isError(e ast.Expr) bool {
	if c, ok := e.(*ast.CallExpr); ok {
		return f.callee(c) == "fmt.Errorf" || f.callee(c) == "errors.New"
	}
	if u, ok := e.(*ast.UnaryExpr); ok {
		return u.Op == token.AND
	}
	return f.errors[e]
}

// noteErrors remembers the results in if err != nil { return 0, err }.
func (f *finder) noteErrors(s *ast.IfStmt) {
	for _, stmt := range s.Body.List {
		if r, ok := stmt.(*ast.ReturnStmt); ok && len(r.Results) > 1 {
			last := r.Results[len(r.Results)-1]
			f.errors[last] = f.textOf(s.Cond) == f.textOf(last)+" != nil"
		}
	}
}

func (f *finder) turn(what ast.Node, at token.Pos, op token.Token) {
	if to, ok := turned[op]; ok {
		f.add(f.head(what), at, at, at+token.Pos(len(op.String())), op.String()+" -> "+to.String(), to.String(), nil)
	}
}

func (f *finder) isNumber(e ast.Expr) bool {
	t := f.info.TypeOf(e)
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0
}

// constant adds the mutants of a constant expression as a whole: 1<<20 is one number.
func (f *finder) constant(e ast.Expr, tv types.TypeAndValue) {
	if id, ok := e.(*ast.Ident); ok {
		if f.info.Uses[id] == types.Universe.Lookup("true") {
			f.add(f.head(f.parents[e]), e.Pos(), e.Pos(), e.End(), "true -> false", "false", nil)
		}
		if f.info.Uses[id] == types.Universe.Lookup("false") {
			f.add(f.head(f.parents[e]), e.Pos(), e.Pos(), e.End(), "false -> true", "true", nil)
		}
		return
	}
	if tv.Value.Kind() != constant.Int || !f.hasLiteral(e) || isDuration(tv.Type) && (!plain(e) || constant.Sign(tv.Value) == 0) {
		return
	}
	for _, by := range []string{"+", "-"} {
		to := "(" + f.textOf(e) + " " + by + " 1)"
		if n, ok := constant.Int64Val(tv.Value); ok && plain(e) {
			op := token.ADD
			if by == "-" {
				op = token.SUB
			}
			to = constant.BinaryOp(constant.MakeInt64(n), op, constant.MakeInt64(1)).String()
		}
		// Below 0 most mutants are as wrong as above it, or do not compile.
		if by == "-" && constant.Sign(tv.Value) == 0 {
			continue
		}
		f.add(f.head(f.parents[e]), e.Pos(), e.Pos(), e.End(), "n -> n"+by+"1", to, nil)
	}
}

// hasLiteral reports whether e is written with a number of its own and without iota.
func (f *finder) hasLiteral(e ast.Expr) bool {
	number, iota := false, false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			number = number || n.Kind == token.INT
		case *ast.Ident:
			iota = iota || n.Name == "iota"
		}
		return true
	})
	return number && !iota
}

// plain reports whether e is written as a decimal number.
func plain(e ast.Expr) bool {
	if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.SUB {
		e = u.X
	}
	lit, ok := e.(*ast.BasicLit)
	return ok && !strings.ContainsAny(lit.Value, "xXbBoO_'")
}

func isDuration(t types.Type) bool {
	n, ok := t.(*types.Named)
	return ok && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == "time" && n.Obj().Name() == "Duration"
}

// call adds the mutants of a call and of those arguments that a test should check.
func (f *finder) call(c *ast.CallExpr) bool {
	if f.silent(c) {
		return false
	}
	var keep []ast.Expr
	switch f.callee(c) {
	case "builtin.make":
		keep = c.Args[1:]
		if _, ok := f.info.TypeOf(c).Underlying().(*types.Map); ok {
			keep = nil
		}
		keep = keep[:min(1, len(keep))]
	case "slices.Grow":
		keep = c.Args[:1]
	case "builtin.append":
		if len(c.Args) > 1 {
			f.add(f.head(c), c.Pos(), c.Pos(), c.End(), "drop append", f.textOf(c.Args[0]), c)
		}
		return true
	default:
		return true
	}
	for _, a := range keep {
		ast.Inspect(a, f.visit)
	}
	return false
}

// callee names the called function: "fmt.Errorf", "(*log/slog.Logger).Info", "builtin.make", or "" for
// a conversion or a function value.
func (f *finder) callee(c *ast.CallExpr) string {
	fun := ast.Unparen(c.Fun)
	if x, ok := fun.(*ast.IndexExpr); ok {
		fun = x.X
	}
	id, ok := fun.(*ast.Ident)
	if sel, isSel := fun.(*ast.SelectorExpr); isSel {
		id, ok = sel.Sel, true
	}
	if !ok {
		return ""
	}
	switch o := f.info.Uses[id].(type) {
	case *types.Builtin:
		return "builtin." + o.Name()
	case *types.Func:
		return o.FullName()
	}
	return ""
}

// silent reports whether c and its arguments are for people: logs, errors' texts, panics.
func (f *finder) silent(c *ast.CallExpr) bool {
	name := f.callee(c)
	switch name {
	case "fmt.Errorf", "errors.New", "builtin.panic":
		return true
	}
	return strings.HasPrefix(name, "log/slog.") || strings.HasPrefix(name, "(*log/slog.Logger).")
}
