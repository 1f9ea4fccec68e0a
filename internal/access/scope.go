package access

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
	Metrics Scope = "metrics" // what the process says about itself
	Admin   Scope = "admin"   // change, copy and correct what was counted
)

// Scopes is all of them.
func Scopes() []Scope { return []Scope{Publish, Read, Metrics, Admin} }

func checkScopes(scopes []Scope) error {
	if len(scopes) == 0 {
		return fmt.Errorf("scopes: none is there (limit: %s)", join(Scopes(), ", "))
	}
	for i, s := range scopes {
		if !slices.Contains(Scopes(), s) {
			return fmt.Errorf("scopes: number %d is no scope (limit: %s)", i+1, join(Scopes(), ", "))
		}
		if slices.Contains(scopes[:i], s) {
			return fmt.Errorf("scopes: %s stands twice", s)
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

// A Need is what a route asks of its callers. The zero Need is none: a route that was
// given no thought cannot be registered.
type Need struct {
	scope      Scope
	anyone     bool
	perCounter bool
}

// Anyone is the need of routes that everybody may call, with or without a token.
var Anyone = Need{anyone: true}

// Whole is the need of a route that is about more than counters it could check one by
// one: callers that are limited to prefixes are refused.
func Whole(s Scope) Need { return Need{scope: s} }

// PerCounter is the need of a route that shows or changes no counter without asking
// Caller.Check or Caller.Ranges. Where the pattern holds {name}, the router asks.
func PerCounter(s Scope) Need { return Need{scope: s, perCounter: true} }

// Valid reports whether n is one of those above.
func (n Need) Valid() bool { return n.anyone || slices.Contains(Scopes(), n.scope) }

// ForAnyone reports whether everybody may call.
func (n Need) ForAnyone() bool { return n.anyone }

// Scope is what a caller must have; empty for Anyone.
func (n Need) Scope() Scope { return n.scope }

// PerCounter reports whether callers that are limited to prefixes may call.
func (n Need) PerCounter() bool { return n.perCounter }
