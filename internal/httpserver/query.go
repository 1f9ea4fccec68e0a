package httpserver

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/countmill/countmill"
)

// Params are the parameters of a query.
type Params struct{ url.Values }

// Query returns the request's query. Parameters in once may be given once, parameters in often any
// number of times. Any other is refused, because a mistyped max_staleness that is ignored is a
// wrong answer. The error is a *countmill.FieldError about a wrong parameter.
func Query(r *http.Request, once, often []string) (Params, error) {
	if r.URL.RawQuery == "" {
		return Params{}, nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return Params{}, &countmill.FieldError{Field: "query", Problem: "is not well formed: " + err.Error()}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case slices.Contains(often, name):
		case !slices.Contains(once, name):
			return Params{}, unknownParameter(name, slices.Concat(once, often))
		case len(values[name]) > 1:
			return Params{}, &countmill.FieldError{Field: name, Problem: "is given more than once", Limit: "once"}
		}
	}
	return Params{values}, nil
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
