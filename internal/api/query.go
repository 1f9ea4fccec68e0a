package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/countmill/countmill"
)

// Query returns the request's query. Parameters in single may stand once, those in
// multiple any number of times; any other is refused, because a mistyped max_staleness
// that is ignored is a wrong answer. The error is a *countmill.FieldError.
func Query(r *http.Request, single, multiple []string) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &countmill.FieldError{Field: "query", Problem: "is not well formed: " + err.Error()}
	}
	names := make([]string, 0, len(query))
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names) // the same request gets the same answer
	for _, name := range names {
		switch {
		case slices.Contains(multiple, name):
		case !slices.Contains(single, name):
			return nil, unknownParameter(name, slices.Concat(single, multiple))
		case len(query[name]) > 1:
			return nil, &countmill.FieldError{Field: name, Problem: "stands twice", Limit: "once"}
		}
	}
	return query, nil
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
