package httpserver

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/countmill/countmill/internal/auth"
)

// nameParam ends a pattern that takes a counter's name.
const nameParam = "{name}"

// A Router dispatches on the path exactly as it was sent. Counter names hold "/" and
// "..", and http.ServeMux would redirect a//b to a/b, which is another counter; a
// Router never redirects. It answers unknown paths and methods with a 404 or 405 problem.
//
// Every route names the rights that its callers need. A caller without them is refused
// (guard.go).
//
// Register everything before the first request.
type Router struct {
	log     *slog.Logger
	guard   *guard   // nil: there are no tokens, and everybody may everything
	origins []string // of web pages whose scripts may call; nil: none
	fixed   map[string]methods
	named   map[string]methods // by the path before the name
	prefix  []string           // keys of named
	files   map[string]http.Handler
}

// A Route is a method and a pattern as Handle takes it.
type Route struct {
	Method, Pattern string
	Need            auth.Need
}

type methods map[string]route

type route struct {
	need    auth.Need
	handler http.Handler
}

// NewRouter returns a router without routes. A nil log discards.
func NewRouter(log *slog.Logger) *Router {
	return &Router{log: orDiscard(log), fixed: map[string]methods{}, named: map[string]methods{}}
}

// Handle registers a pattern such as "/v1/increments" or "/v1/counters/{name}". The
// name is one path segment, "/" in it written as %2F; the handler finds it decoded in
// r.PathValue("name") and checks it. GET takes HEAD too. Handle panics for a programmer's
// error: a pattern that is not a path or is registered twice, or an empty need.
func (rt *Router) Handle(method, pattern string, need auth.Need, h http.Handler) {
	routes, key := rt.fixed, pattern
	if prefix, ok := strings.CutSuffix(pattern, "/"+nameParam); ok {
		routes, key = rt.named, prefix+"/"
		if routes[key] == nil {
			rt.prefix = append(rt.prefix, key)
		}
	}
	if !strings.HasPrefix(key, "/") || strings.ContainsAny(key, "{}%?# ") {
		panic(fmt.Sprintf("httpserver: bad pattern %q", pattern))
	}
	if !need.Valid() || h == nil {
		panic(fmt.Sprintf("httpserver: %s %s does not say what its callers need", method, pattern))
	}
	if routes[key] == nil {
		routes[key] = methods{}
	}
	if _, ok := routes[key][method]; ok {
		panic(fmt.Sprintf("httpserver: %s %s registered twice", method, pattern))
	}
	routes[key][method] = route{need, h}
}

// Files registers the paths of files that are the same for everybody, such as those of a web page.
// They need no token, and Routes does not list them: they are not part of the API. h checks the
// method.
func (rt *Router) Files(paths []string, h http.Handler) {
	rt.files = make(map[string]http.Handler, len(paths))
	for _, path := range paths {
		if _, ok := rt.fixed[path]; ok || !strings.HasPrefix(path, "/") {
			panic(fmt.Sprintf("httpserver: bad path %q of a file", path))
		}
		rt.files[path] = h
	}
}

// ServeHTTP answers the request with its handler.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	allowed := rt.allowOrigin(w, r)
	path := sentPath(r.URL)
	if routes, ok := rt.fixed[path]; ok {
		if !allowed || !preflight(routes, w, r) {
			rt.serve(routes, w, r)
		}
		return
	}
	if h, ok := rt.files[path]; ok {
		h.ServeHTTP(w, r)
		return
	}
	for _, prefix := range rt.prefix {
		segment, ok := strings.CutPrefix(path, prefix)
		if !ok {
			continue
		}
		name, err := nameIn(prefix, segment)
		if err != nil {
			WriteError(w, r, rt.log, err)
			return
		}
		r.SetPathValue("name", name)
		if !allowed || !preflight(rt.named[prefix], w, r) {
			rt.serve(rt.named[prefix], w, r)
		}
		return
	}
	WriteError(w, r, rt.log, NewProblem(http.StatusNotFound, "not-found", "not found", "there is no such path; see /openapi.json"))
}

func (rt *Router) serve(routes methods, w http.ResponseWriter, r *http.Request) {
	to, ok := routes[r.Method]
	if !ok && r.Method == http.MethodHead {
		to, ok = routes[http.MethodGet]
	}
	if !ok {
		WriteError(w, r, rt.log, MethodNotAllowed(routes.allowed()...))
		return
	}
	if !to.need.ForAnyone() { // also where a handler sets nothing
		w.Header()["Cache-Control"] = noStore
	}
	if rt.guard != nil {
		rt.guard.serve(to, w, r)
		return
	}
	if !to.need.ForAnyone() {
		if err := LetIn(r, ""); err != nil {
			WriteError(w, r, rt.log, err)
			return
		}
	}
	to.handler.ServeHTTP(w, r)
}

func (m methods) allowed() []string {
	var allowed []string
	for method := range m {
		allowed = append(allowed, method)
	}
	if slices.Contains(allowed, http.MethodGet) && !slices.Contains(allowed, http.MethodHead) {
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	return allowed
}

// MethodNotAllowed is the 405 that names the methods that are allowed.
func MethodNotAllowed(allowed ...string) *Problem {
	list := strings.Join(allowed, ", ")
	return NewProblem(http.StatusMethodNotAllowed, "method-not-allowed", "method not allowed",
		"this path takes "+list).with("Allow", list)
}

// sentPath is the path as it was sent. URL.EscapedPath escapes a path anew if it holds
// something that should have been escaped, such as "|". Then it forgets which "/" was a %2F.
func sentPath(u *url.URL) string {
	if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path {
		return u.RawPath
	}
	return u.EscapedPath()
}

// nameIn returns the name that an escaped path segment encodes. It refuses "." and ".." unless
// they were sent escaped: clients and proxies take them for parts of the path.
func nameIn(prefix, segment string) (string, error) {
	how := `a name in a path is one segment: write "/" in it as %2F`
	if prefix == "/v1/counters/" {
		how += ", or use GET /v1/totals?counter=NAME"
	}
	var problem string
	switch {
	case segment == "":
		problem = "nothing is named"
	case segment == "." || segment == "..":
		problem = "the path ends in " + segment
	case strings.Contains(segment, "/"):
		problem = `the name holds a "/" that is not escaped`
	}
	name, err := url.PathUnescape(segment)
	if err != nil {
		problem = "the path is not well escaped"
	}
	if problem != "" {
		p := NewProblem(http.StatusNotFound, "not-found", "not found", problem+": "+how)
		p.Field, p.Limit = "name", "one path segment"
		return "", p
	}
	return name, nil
}
