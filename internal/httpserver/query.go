package httpserver

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/countmill/countmill"
)

// maxParams is how many parameters net/url takes too.
const maxParams = 10_000

// Params are the parameters of a query, in the order in which they were sent. There are
// few of them, so looking through them is faster than a map.
type Params []Param

// A Param is one of them.
type Param struct{ Name, Value string }

// Has reports whether there is a parameter of that name.
func (p Params) Has(name string) bool {
	return slices.ContainsFunc(p, func(q Param) bool { return q.Name == name })
}

// Get is the first value under that name; empty if there is none.
func (p Params) Get(name string) string {
	for _, q := range p {
		if q.Name == name {
			return q.Value
		}
	}
	return ""
}

// All are the values under that name, in order.
func (p Params) All(name string) []string {
	var values []string
	for _, q := range p {
		if q.Name == name {
			values = append(values, q.Value)
		}
	}
	return values
}

// Query returns the request's query, which it reads as url.ParseQuery does. Parameters in
// single may be given once, parameters in multiple any number of times. Any other is refused,
// because a mistyped max_staleness that is ignored is a wrong answer. The error is a
// *countmill.FieldError about the first wrong parameter.
func Query(r *http.Request, single, multiple []string) (Params, error) {
	rest := r.URL.RawQuery
	if rest == "" {
		return nil, nil
	}
	if strings.Count(rest, "&") >= maxParams {
		return nil, malformed(errors.New("number of URL query parameters exceeded limit"))
	}
	params := make(Params, 0, 4) // most requests have no more
	for rest != "" {
		var pair string
		if pair, rest, _ = strings.Cut(rest, "&"); pair == "" {
			continue
		}
		param, err := unescape(pair)
		switch {
		case err != nil:
			return nil, malformed(err)
		case slices.Contains(multiple, param.Name):
		case !slices.Contains(single, param.Name):
			return nil, unknownParameter(param.Name, slices.Concat(single, multiple))
		case params.Has(param.Name):
			return nil, &countmill.FieldError{Field: param.Name, Problem: "is given more than once", Limit: "once"}
		}
		params = append(params, param)
	}
	return params, nil
}

func unescape(pair string) (p Param, err error) {
	if strings.Contains(pair, ";") { // a separator once: who wrote it may mean it as one
		return p, errors.New("invalid semicolon separator in query")
	}
	name, value, _ := strings.Cut(pair, "=")
	if p.Name, err = url.QueryUnescape(name); err != nil {
		return p, err
	}
	p.Value, err = url.QueryUnescape(value)
	return p, err
}

func malformed(err error) error {
	return &countmill.FieldError{Field: "query", Problem: "is not well formed: " + err.Error()}
}

func unknownParameter(name string, valid []string) error {
	limit := "this call takes no parameters"
	if len(valid) > 0 {
		slices.Sort(valid)
		limit = strings.Join(valid, ", ")
	}
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	return &countmill.FieldError{Field: name, Problem: "is not a parameter", Limit: limit}
}
