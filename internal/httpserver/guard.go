package httpserver

import (
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/countmill/countmill/internal/auth"
)

// An Authenticator knows callers by their tokens. *auth.Tokens is one.
type Authenticator interface {
	Authenticate(secret string) (auth.Caller, error)
}

// Refusals counts the requests that a guard refused.
type Refusals struct {
	Unauthorized, Forbidden atomic.Int64 // answered with 401 and 403
}

// A guard checks the caller of every route.
type guard struct {
	known   Authenticator
	log     *slog.Logger
	refused *Refusals
}

// Guard lets callers through only with tokens that a knows, and counts the others.
// Handlers find the caller with auth.From. Without it everybody may everything.
func (rt *Router) Guard(a Authenticator, refused *Refusals) {
	rt.guard = &guard{a, rt.log, refused}
}

func (g *guard) serve(to route, w http.ResponseWriter, r *http.Request) {
	caller, err := g.caller(r)
	if !to.need.ForAnyone() {
		if err == nil {
			if err := LetIn(r, caller.Name); err != nil {
				WriteError(w, r, g.log, err)
				return
			}
			err = admit(caller, to.need, r)
		}
		if err != nil {
			g.count(err)
			WriteError(w, r, g.log, err)
			return
		}
	}
	if to.need.Scope() == auth.Admin {
		g.log.LogAttrs(r.Context(), slog.LevelInfo, "admin call", slog.String("caller", caller.Name),
			slog.String("method", r.Method), slog.String("path", auth.Redact(r.URL.EscapedPath())))
	}
	to.handler.ServeHTTP(w, r.WithContext(auth.With(r.Context(), caller)))
}

// caller returns the sender of the request. It looks for a token in one header only, because
// proxies and browsers know that this header holds a secret.
func (g *guard) caller(r *http.Request) (auth.Caller, error) {
	values := r.Header["Authorization"]
	if len(values) == 0 {
		return auth.Caller{}, unauthorized("", "this call needs a token: Authorization: Bearer TOKEN")
	}
	scheme, secret, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return auth.Caller{}, unauthorized("", "give Authorization once, as Bearer TOKEN")
	}
	caller, err := g.known.Authenticate(strings.TrimLeft(secret, " "))
	if err != nil {
		return auth.Caller{}, unauthorized("invalid_token", err.Error())
	}
	return caller, nil
}

// admit returns why the caller may not call a route. It looks at the scope and at a counter in
// the path, not at parameters or bodies.
func admit(caller auth.Caller, need auth.Need, r *http.Request) error {
	switch {
	case !caller.Has(need.Scope()):
		return forbidden("this token may not do this: it needs the scope "+string(need.Scope())).
			with("WWW-Authenticate", challenge("insufficient_scope")+`, scope="`+string(need.Scope())+`"`)
	case caller.Limited() && !need.PerCounter():
		return forbidden("this call is about all counters, and this token is limited to those of its prefixes: it needs a token without --prefix")
	}
	if name := r.PathValue("name"); name != "" {
		return caller.Check(name)
	}
	return nil
}

func (g *guard) count(err error) {
	if AsProblem(err).Status == http.StatusUnauthorized {
		g.refused.Unauthorized.Add(1)
	} else {
		g.refused.Forbidden.Add(1)
	}
}

// challenge is the value of WWW-Authenticate (RFC 6750).
func challenge(code string) string {
	if code == "" {
		return `Bearer realm="countmill"`
	}
	return `Bearer realm="countmill", error="` + code + `"`
}

func unauthorized(code, detail string) *Problem {
	return NewProblem(http.StatusUnauthorized, "unauthorized", "unauthorized", detail).with("WWW-Authenticate", challenge(code))
}

func forbidden(detail string) *Problem {
	return NewProblem(http.StatusForbidden, "forbidden", "forbidden", detail+": nothing was done")
}

func outsideProblem(err *auth.OutsideError) *Problem {
	p := forbidden(err.Error())
	p.Field, p.Limit, p.Index, p.Line, p.Lines = err.Field, err.Limit(), err.Index, err.Line, err.Lines
	return p
}
