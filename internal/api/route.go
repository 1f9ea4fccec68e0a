package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

// A route is a line of the table. The OpenAPI document, the pages of the reference and of the scopes, and the checks of requests
// are made of it.
type route struct {
	op           string // a verb and a noun
	method, path string
	role         *role
	need         auth.Need
	says, more   string // a title, and what callers need to know

	// in are the parameters. Any other is refused, unless free.
	in   []*param
	body *body // nil: the request has none, or takes has it
	// takes are the types of a body that answers reads, and most is the largest one in words.
	takes []media
	most  string
	out   success
	// fails are the problems that do not follow from the rest of the route, by status.
	fails fails

	// free parameters are ignored.
	free   bool
	counts bool          // it takes increments: the gate is before it
	share  int           // the resource of which each request takes one while it is served; 0: none
	within time.Duration // bounds the answer; 0: Config.Timeout; forever: answer has a bound of its own

	// answer returns the value of a success, or the error of a problem.
	answer func(*API, call) (any, error)
	// writes replaces answer if the answer is not a JSON value. It has written nothing if it
	// returns an error.
	writes func(*API, call) error

	tag         string   // its heading
	once, often []string // in: the parameters that may be given once, and repeatedly
}

// A param is a parameter. The table declares it once, and several routes may have it.
type param struct {
	name, says string
	in         string // "" is the query
	shared     string // its name in the document; empty for a parameter described at its route
	required   bool
	often      bool // 1 to 100 times

	most     int      // of a number, which is at least 1
	oneOf    []string // of a text
	schema   string   // of any other value, as in the tags of package client
	fallback any
}

// check refuses a value that the table does not allow.
func (p *param) check(value string) error {
	switch {
	case p.most > 0:
		if n, err := strconv.Atoi(value); err != nil || n < 1 || n > p.most {
			return &countmill.FieldError{Field: p.name, Problem: "is not a number in range", Limit: "1 to " + strconv.Itoa(p.most)}
		}
	case p.oneOf != nil && !slices.Contains(p.oneOf, value):
		return &countmill.FieldError{Field: p.name, Problem: "is not known", Limit: strings.Join(p.oneOf, ", ")}
	}
	return nil
}

// param is the parameter of that name.
func (to *route) param(name string) *param {
	for _, p := range to.in {
		if p.name == name {
			return p
		}
	}
	return nil
}

// A media is a type of a body, and its schema.
type media struct {
	kind string
	of   any    // a type of package client, or a schema as in its tags
	with string // further members, as JSON
}

// A success is the answer of a route if all goes well.
type success struct {
	status  int // 0 is 200
	says    string
	as      []media
	headers []header
}

type header struct{ name, kind, says string }

// gives is a success of one type.
func gives(says string, of any) success {
	return success{says: says, as: []media{{kind: typeJSON, of: of}}}
}

// fails are names of problems by status. One with spaces is a text.
type fails map[int]string

const forever = -1

// A role is the processes that have a route.
type role struct {
	roles string // in words
	here  func(*Services) bool
}

// A call is a request as far as its route has read it. It is passed by value: a pointer would
// cost an allocation for each request.
type call struct {
	ctx    context.Context // of the request, bounded by the route's time
	w      http.ResponseWriter
	r      *http.Request
	to     *route
	params httpserver.Params
	body   any   // what body.empty returned, filled in
	size   int   // of the body, in bytes
	hold   *hold // if the route takes increments
}

func (c call) caller() auth.Caller { return auth.From(c.ctx) }

// name is the last segment of a path that ends in {name}.
func (c call) name() string { return c.r.PathValue("name") }

// number is a parameter, or its fallback.
func (c call) number(name string) int {
	if n, err := strconv.Atoi(c.params.Get(name)); err == nil {
		return n
	}
	return c.to.param(name).fallback.(int)
}

// is reports whether a parameter has that value.
func (c call) is(name, value string) bool { return c.params.Get(name) == value }

// quoted reports whether totals are to be strings.
func (c call) quoted() bool { return c.is("format", "string") }

// formatted is an answer whose numbers are strings if the caller wants that.
func (c call) formatted(v any) any {
	if c.quoted() {
		return httpserver.Formatted{Value: v, Options: json.StringifyNumbers(true)}
	}
	return v
}

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
		c := call{ctx: r.Context(), w: w, r: r, to: to}
		if to.counts { // until the answer is written: it may name all that the body has
			c.hold = &hold{resource: bodiesSent, caller: sharesAs(c)}
			defer a.pools.release(c.hold)
		}
		if to.role == onReader {
			c.ctx = reader.WithCaller(c.ctx, sharesAs(c))
		}
		if to.within != forever {
			ctx, cancel := context.WithTimeout(c.ctx, a.timeOf(to))
			defer cancel()
			c.ctx = ctx
		}
		if to.within > time.Minute { // the server's own limit is for short answers
			_ = httpserver.ExtendWrite(w, to.within+10*time.Second) // tests write without a connection
		}
		v, err := a.serve(to, c)
		if err == nil && to.answer != nil {
			err = a.write(c, v)
		}
		if err != nil {
			httpserver.WriteError(w, r, a.cfg.Logger, a.asProblem(c, err))
		}
	})
}

// write answers. Without room for a large answer it refuses a read. A change is done, and an error would say that it is not:
// its answer has no totals.
func (a *API) write(c call, v any) error {
	status := max(c.to.out.status, http.StatusOK)
	err := httpserver.WriteJSON(c.w, status, v, func(size int) (func(), error) { return a.large(c, size) })
	if err == nil || c.to.method == http.MethodGet || c.to.need.Scope() == auth.Read {
		return err
	}
	if done, ok := v.(*counted); ok {
		done.read = false
	}
	return httpserver.WriteJSON(c.w, status, v, nil)
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
	if to.counts {
		if !a.gate.enter() {
			c.w.Header().Set("Connection", "close")
			return nil, httpserver.ErrStopping
		}
		defer a.gate.leave()
	}
	if !to.free {
		if c.params, err = httpserver.Query(c.r, to.once, to.often); err != nil {
			return nil, err
		}
		for _, p := range to.in {
			for _, value := range c.params.Values[p.name] {
				if err := p.check(value); err != nil {
					return nil, err
				}
			}
		}
	}
	if to.body != nil {
		h := hold{resource: bodiesAsked, caller: sharesAs(c)}
		defer a.pools.release(&h)
		if c.body, c.size, err = a.readObject(c, to.body, &h); err != nil {
			return nil, err
		}
	}
	if to.share != 0 {
		give, err := a.pools.take(to.share, sharesAs(c), 1)
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
