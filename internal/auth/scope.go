package auth

import (
	"fmt"
	"slices"
	"strings"
)

// A Scope is a kind of calls that a token may make. None implies another.
type Scope string

// The scopes.
const (
	Publish Scope = "publish" // count
	Read    Scope = "read"    // totals
	Metrics Scope = "metrics" // the process's metrics
	Admin   Scope = "admin"   // change, copy and correct counted data
)

// Scopes returns all of them.
func Scopes() []Scope { return []Scope{Publish, Read, Metrics, Admin} }

func checkScopes(scopes []Scope) error {
	if len(scopes) == 0 {
		return fmt.Errorf("scopes: the list is empty (limit: %s)", join(Scopes(), ", "))
	}
	for i, s := range scopes {
		if !slices.Contains(Scopes(), s) {
			return fmt.Errorf("scopes: number %d is not a scope (limit: %s)", i+1, join(Scopes(), ", "))
		}
		if slices.Contains(scopes[:i], s) {
			return fmt.Errorf("scopes: %s is listed twice", s)
		}
	}
	return nil
}

func join(scopes []Scope, between string) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, between)
}

// A Need is the right that a route requires of its callers. The zero Need is invalid, so a route
// without a Need cannot be registered.
type Need struct {
	scope      Scope
	anyone     bool
	perCounter bool
}

// Anyone is the need of routes that everybody may call, with or without a token.
var Anyone = Need{anyone: true}

// Whole is the need of a route that concerns more than single counters. It refuses callers that are
// limited to prefixes.
func Whole(s Scope) Need { return Need{scope: s} }

// PerCounter is the need of a route that calls Caller.Check or Caller.Ranges for each counter that it
// shows or changes. If the pattern contains {name}, the router checks that counter.
func PerCounter(s Scope) Need { return Need{scope: s, perCounter: true} }

// Valid reports whether n is one of the needs above.
func (n Need) Valid() bool { return n.anyone || slices.Contains(Scopes(), n.scope) }

// ForAnyone reports whether everybody may call.
func (n Need) ForAnyone() bool { return n.anyone }

// Scope returns the scope that a caller must have; "" for Anyone.
func (n Need) Scope() Scope { return n.scope }

// PerCounter reports whether callers that are limited to prefixes may call.
func (n Need) PerCounter() bool { return n.perCounter }
