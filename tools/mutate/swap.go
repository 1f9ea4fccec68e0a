package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// An effect is everything about a statement that matters for its order among others.
type effect struct {
	calls  bool     // calls a function with unknown effects
	writes []string // assigned variables
	shared bool     // assigns to shared data: a field, an element, a pointer's target
	reads  map[string]bool
	locks  bool
}

// ordered reports whether "a before b" may differ from "b before a": both call something, or one may
// write data that the other reads.
//
// Only the race detector may notice that a lock and its protected statement are swapped. Without it,
// such pairs are left alone.
func (f *finder) ordered(a, b ast.Stmt) bool {
	x, ok := f.effect(a)
	y, ok2 := f.effect(b)
	if !ok || !ok2 || (x.locks || y.locks) && !f.race {
		return false
	}
	return x.calls && y.calls || x.calls && y.shared || y.calls && x.shared || x.touches(y) || y.touches(x)
}

func (e effect) touches(other effect) bool {
	for _, w := range e.writes {
		if other.reads[w] {
			return true
		}
	}
	return false
}

// effect returns the effect of a call or an assignment; false for other statements and for logs.
func (f *finder) effect(s ast.Stmt) (effect, bool) {
	e := effect{reads: map[string]bool{}}
	switch s := s.(type) {
	case *ast.ExprStmt:
		c, ok := s.X.(*ast.CallExpr)
		if !ok || f.silent(c) {
			return e, false
		}
		if name := f.callee(c); strings.HasPrefix(name, "builtin.") {
			e.shared = true // delete, close, copy, clear
			e.writes = append(e.writes, types.ExprString(c.Args[0]))
		} else {
			e.locks = strings.HasPrefix(name, "(*sync.") && strings.HasSuffix(name, "ock")
		}
	case *ast.AssignStmt:
		if allBlank(s.Lhs) {
			return e, false
		}
		for _, l := range s.Lhs {
			e.write(l, s.Tok == token.DEFINE)
		}
	case *ast.IncDecStmt:
		e.write(s.X, false)
	default:
		return e, false
	}
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			name := f.callee(n)
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(name, "(*sync/atomic.") {
				e.shared = true
				e.writes = append(e.writes, types.ExprString(sel.X))
				break
			}
			e.calls = e.calls || !strings.HasPrefix(name, "builtin.") && !f.info.Types[n.Fun].IsType()
		case *ast.UnaryExpr:
			e.calls = e.calls || n.Op == token.ARROW
		}
		if x, ok := n.(ast.Expr); ok {
			e.reads[types.ExprString(x)] = true
		}
		return true
	})
	return e, true
}

func (e *effect) write(to ast.Expr, defines bool) {
	e.writes = append(e.writes, types.ExprString(to))
	_, local := to.(*ast.Ident)
	e.shared = e.shared || !local && !defines
}
