package httpserver

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/countmill/countmill"
)

func TestQueryRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ query, field, problem, limit string }{
		{"max_stalenes=2s", "max_stalenes", "is not a parameter", "counter, format, max_staleness"},
		{"Format=string", "Format", "is not a parameter", "counter, format, max_staleness"},
		{"=x", "", "is not a parameter", "counter, format, max_staleness"},
		{"format=a&format=a", "format", "is given more than once", "once"},
		{"format=%zz", "query", "is not well formed", ""},
		{"counter=a;format=b", "query", "is not well formed", ""},
		{"counter=a" + strings.Repeat("&", 10_000), "query", "is not well formed: number of URL query parameters", ""},
	} {
		r := httptest.NewRequest("GET", "/x", nil)
		r.URL.RawQuery = tc.query
		_, err := Query(r, []string{"format", "max_staleness"}, []string{"counter"})
		ferr, ok := errors.AsType[*countmill.FieldError](err)
		if !ok || ferr.Field != tc.field || !strings.HasPrefix(ferr.Problem, tc.problem) || ferr.Limit != tc.limit {
			t.Errorf("%.40s: got %v, want %s %s (limit: %s)", tc.query, err, tc.field, tc.problem, tc.limit)
		}
	}
	r := httptest.NewRequest("GET", "/x?a=1", nil)
	if _, err := Query(r, nil, nil); err == nil || !strings.Contains(err.Error(), "takes no parameters") {
		t.Errorf("got %v, want an error that says there are no parameters", err)
	}
}
