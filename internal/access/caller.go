package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A Caller is who makes a request. The zero Caller is where nobody is told apart: it may
// all that its route lets it.
type Caller struct {
	// Name is the token's; empty where there are no tokens. It is the principal in the
	// ids of requests with an Idempotency-Key.
	Name string

	token  *Token
	tokens *Tokens
}

// Has reports whether the caller may make calls of this scope.
func (c Caller) Has(s Scope) bool { return c.token == nil || c.token.has(s) }

// Limited reports whether only some counters are the caller's.
func (c Caller) Limited() bool { return c.token != nil && c.token.Prefixes != nil }

// Current reports whether the token would still be taken: a stream asks now and then.
func (c Caller) Current() bool { return c.token == nil || c.tokens.current(c.token) }

// An OutsideError is about a counter that is not the caller's. Nothing was done.
type OutsideError struct {
	Field    string // counter, prefix or match
	Value    string
	Prefixes []string // those of the token

	// Where the counter stands in the request, if that holds several.
	Index, Line *int
}

func (e *OutsideError) Error() string {
	return fmt.Sprintf("%s %q is outside what this token may see and change (limit: %s)", e.Field, e.Value, e.Limit())
}

// Limit is what names must begin with; of very many only some are shown.
func (e *OutsideError) Limit() string {
	const most = 5
	shown := make([]string, 0, most)
	for _, p := range e.Prefixes[:min(len(e.Prefixes), most)] {
		shown = append(shown, p+"*")
	}
	text := strings.Join(shown, ", ")
	if more := len(e.Prefixes) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Check returns nil if the counter is the caller's, else an *OutsideError.
func (c Caller) Check(counter string) error {
	if !c.Limited() {
		return nil
	}
	for _, p := range c.token.Prefixes {
		if strings.HasPrefix(counter, p) {
			return nil
		}
	}
	return &OutsideError{Field: "counter", Value: counter, Prefixes: c.token.Prefixes}
}

// CheckAll is Check for several counters; the error has the index of the first that is
// not the caller's.
func (c Caller) CheckAll(counters []string) error {
	for i, counter := range counters {
		if err := c.Check(counter); err != nil {
			if len(counters) > 1 {
				err.(*OutsideError).Index = &i
			}
			return err
		}
	}
	return nil
}

// Ranges returns prefixes that together hold exactly the caller's counters under a
// prefix, in byte order and without overlap. field names the prefix in an error, an
// *OutsideError where there can be no such counter.
func (c Caller) Ranges(field, prefix string) ([]string, error) {
	if !c.Limited() {
		return []string{prefix}, nil
	}
	var inside []string
	for _, p := range c.token.Prefixes {
		switch {
		case strings.HasPrefix(prefix, p):
			return []string{prefix}, nil
		case strings.HasPrefix(p, prefix):
			inside = append(inside, p)
		}
	}
	if len(inside) == 0 {
		return nil, &OutsideError{Field: field, Value: prefix, Prefixes: c.token.Prefixes}
	}
	slices.Sort(inside) // a prefix comes right before what it covers
	ranges := inside[:1]
	for _, p := range inside[1:] {
		if !strings.HasPrefix(p, ranges[len(ranges)-1]) {
			ranges = append(ranges, p)
		}
	}
	return ranges, nil
}

type callerKey struct{}

// With returns a context that knows the caller.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From returns the caller of a request; the zero Caller where nobody was asked.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
