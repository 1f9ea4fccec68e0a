package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

// A route is a line of the table.
type route struct {
	method, path string
	need         auth.Need
	role         *role

	// once are the parameters that may be given once, often the parameters that may be
	// repeated. Any other is refused, unless free.
	once, often []string
	// free parameters are ignored.
	free bool

	traced bool          // a Tracer records its requests
	body   *body         // nil: the request has none, or answers reads it
	within time.Duration // bounds the answer; 0: Config.Timeout; forever: answer has a bound of its own

	// answer returns the value of a 200, or the error of a problem.
	answer func(*API, call) (any, error)
	// writes replaces answer if the answer is not a JSON value. It has written nothing if it
	// returns an error.
	writes func(*API, call) error
}

const forever = -1

// A role is the processes that have a route.
type role struct {
	roles    string // in words
	here     func(*Services) bool
	contents bool // its requests take a share of them
}

// A call is a request as far as its route has read it. It is passed by value: a pointer would
// cost an allocation for each request.
type call struct {
	ctx    context.Context // of the request, bounded by the route's time
	w      http.ResponseWriter
	r      *http.Request
	params httpserver.Params
	body   any // what body.empty returned, filled in
	size   int // of the body, in bytes
}

func (c call) caller() auth.Caller { return auth.From(c.ctx) }

// name is the last segment of a path that ends in {name}.
func (c call) name() string { return c.r.PathValue("name") }

// Register adds every route to a router, also those of other roles.
func (a *API) Register(rt *httpserver.Router) {
	for i := range routes {
		rt.Handle(routes[i].method, routes[i].path, routes[i].need, a.handler(&routes[i]))
	}
}

// handler serves one line of the table.
func (a *API) handler(to *route) http.Handler {
	if !to.role.here(&a.services) {
		return a.elsewhere(to)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := call{ctx: r.Context(), w: w, r: r}
		if to.role == onReader {
			c.ctx = reader.WithCaller(c.ctx, sharesAs(c))
		}
		if to.within != forever {
			ctx, cancel := clock.Timeout(c.ctx, a.timeOf(to))
			defer cancel()
			c.ctx = ctx
		}
		v, err := a.trace(to, c)
		switch {
		case err != nil:
			httpserver.WriteError(w, r, a.cfg.Logger, err)
		case to.answer != nil:
			httpserver.WriteJSON(w, http.StatusOK, v)
		}
	})
}

func (a *API) timeOf(to *route) time.Duration {
	if to.within == 0 {
		return a.cfg.Timeout
	}
	return to.within
}

// serve checks a request from the outside in: the form of parameters and body, and then their
// values.
func (a *API) serve(to *route, c call) (v any, err error) {
	if !to.free {
		if c.params, err = httpserver.Query(c.r, to.once, to.often); err != nil {
			return nil, err
		}
	}
	if to.body != nil {
		h := hold{resource: bodiesAsked, caller: sharesAs(c)}
		defer a.pools.release(&h)
		if c.body, c.size, err = a.readObject(c, to.body, &h); err != nil {
			return nil, err
		}
	}
	if to.role.contents {
		give, err := a.pools.take(contents, sharesAs(c), 1)
		if err != nil {
			return nil, err
		}
		defer give()
	}
	if to.writes != nil {
		return nil, to.writes(a, c)
	}
	return to.answer(a, c)
}

// sharesAs is the caller among whom bounds are shared: the token's name or, without tokens,
// the connection.
func sharesAs(c call) string {
	if name := c.caller().Name; name != "" {
		return name
	}
	return c.r.RemoteAddr
}

// elsewhere answers for a route that this process does not have.
func (a *API) elsewhere(to *route) http.Handler {
	running := "no role with this path"
	if len(a.cfg.Roles) > 0 {
		running = "the role " + strings.Join(a.cfg.Roles, ", ")
	}
	if len(a.cfg.Roles) > 1 {
		running = strings.Replace(running, "role", "roles", 1)
	}
	p := httpserver.NewProblem(http.StatusNotFound, "not-found", "not found",
		"this process runs "+running+"; "+to.method+" "+to.path+" is served by the role "+to.role.roles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { httpserver.WriteError(w, r, a.cfg.Logger, p) })
}
