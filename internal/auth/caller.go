package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Caller is the sender of a request. The zero Caller is used without a token file: it may make every
// call.
type Caller struct {
	// Name is the name of the caller's token, or "" without a token file. It is part of the ids of
	// requests with an Idempotency-Key.
	Name string

	token  *Token
	tokens *Tokens
}

// Has reports whether the caller may make calls of this scope.
func (c Caller) Has(s Scope) bool { return c.token == nil || c.token.has(s) }

// Limited reports whether the caller may use only some counters.
func (c Caller) Limited() bool { return c.token != nil && c.token.Prefixes != nil }

// Current reports whether the caller's token is still valid. Long streams call it now and then.
func (c Caller) Current() bool { return c.token == nil || c.tokens.current(c.token) }

// An OutsideError says that the caller may not use a counter. Nothing was done.
type OutsideError struct {
	Field    string // counter, sequence, prefix or match
	Value    string
	Prefixes []string // the token's prefixes

	// Index and Line are the counter's position in the request, if the request has several.
	Index, Line *int
	// Lines are all lines of NDJSON with such counters, the first 10,000 of them.
	Lines []int
}

func (e *OutsideError) Error() string {
	return fmt.Sprintf("%s %q is outside the counters of this token (limit: %s)", e.Field, e.Value, e.Limit())
}

// Limit returns the prefixes of the caller's counters as text. It shows only the first few of many.
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

// Prefixes are those of the caller's counters; nil if it may use all.
func (c Caller) Prefixes() []string {
	if c.token == nil {
		return nil
	}
	return c.token.Prefixes
}

// May reports whether the caller may use all counters with a prefix.
func (c Caller) May(prefix string) bool { return c.Check(prefix) == nil }

// Check returns nil if the caller may use the counter, otherwise an *OutsideError.
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

// CheckAll is Check for several counters. The error has the index of the first counter that the caller
// may not use.
func (c Caller) CheckAll(counters []string) error {
	for i, counter := range counters {
		if err := c.Check(counter); err != nil {
			if outside, ok := errors.AsType[*OutsideError](err); ok && len(counters) > 1 {
				outside.Index = &i
			}
			return err
		}
	}
	return nil
}

// Ranges returns prefixes that together cover exactly the caller's counters under a prefix, in byte
// order and without overlap. If there are none the error is an *OutsideError, in which field is the
// name of the prefix.
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
	slices.Sort(inside) // a prefix sorts right before the names that it covers
	ranges := inside[:1]
	for _, p := range inside[1:] {
		if !strings.HasPrefix(p, ranges[len(ranges)-1]) {
			ranges = append(ranges, p)
		}
	}
	return ranges, nil
}

type callerKey struct{}

// With returns a context with the caller.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From returns the caller of a request, or the zero Caller without a token file.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
