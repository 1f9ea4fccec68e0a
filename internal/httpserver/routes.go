package httpserver

import (
	"cmp"
	"slices"

	"github.com/countmill/countmill/internal/auth"
)

// A Route is a method and a pattern that a Router has a handler for.
type Route struct {
	Method  string
	Pattern string // as Handle takes it
	Need    auth.Need
}

// Routes returns all routes by pattern and method.
func (rt *Router) Routes() []Route {
	var routes []Route
	for path, handlers := range rt.fixed {
		routes = appendRoutes(routes, path, handlers)
	}
	for prefix, handlers := range rt.named {
		routes = appendRoutes(routes, prefix+nameParam, handlers)
	}
	slices.SortFunc(routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Pattern, b.Pattern), cmp.Compare(a.Method, b.Method))
	})
	return routes
}

func appendRoutes(routes []Route, pattern string, handlers methods) []Route {
	for method, to := range handlers {
		routes = append(routes, Route{Method: method, Pattern: pattern, Need: to.need})
	}
	return routes
}
