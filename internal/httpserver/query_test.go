package httpserver

import (
	"errors"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

func TestQuery(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "/x?counter=a%2F%2Fb&format=string&counter=c", nil)
	got, err := Query(r, []string{"format"}, []string{"counter"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Params{{"counter", "a//b"}, {"format", "string"}, {"counter", "c"}}, got); diff != "" {
		t.Errorf("query differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a//b", "c"}, got.All("counter")); diff != "" {
		t.Errorf("All differs (-want +got):\n%s", diff)
	}
	if !got.Has("format") || got.Has("Format") || got.Get("counter") != "a//b" || got.Get("max_staleness") != "" {
		t.Errorf("Has, Get: %t, %t, %q, %q", got.Has("format"), got.Has("Format"), got.Get("counter"), got.Get("max_staleness"))
	}
	if got, err := Query(httptest.NewRequest("GET", "/x", nil), nil, nil); err != nil || got.Get("a") != "" {
		t.Errorf("no query: got %v, %v", got, err)
	}
}

func TestQueryRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ query, field, problem, limit string }{
		{"max_stalenes=2s", "max_stalenes", "is not a parameter", "counter, format, max_staleness"},
		{"Format=string", "Format", "is not a parameter", "counter, format, max_staleness"},
		{"=x", "", "is not a parameter", "counter, format, max_staleness"},
		{"format=a&format=a", "format", "is given more than once", "once"},
		{"format=%zz", "query", "is not well formed", ""},
		{"counter=a;format=b", "query", "is not well formed", ""},
		{"counter=a&format=%zz&format=a&format=a", "query", "is not well formed", ""}, // the first thing that is wrong
		{"x=1&format=%zz", "x", "is not a parameter", "counter, format, max_staleness"},
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

// A query is read as net/url reads it. If net/url finds it malformed, it is refused.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{"a=1&b=2&a=3", "a", "a=&=a&&", "a=%2F%2f+b", "a=%", "%zz=1&a", "a;b=1", "a=1&a;", "a==b&b=a=b"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		want, wantErr := url.ParseQuery(query)
		var names []string
		for name := range want {
			names = append(names, name)
		}
		r := httptest.NewRequest("GET", "/x", nil)
		r.URL.RawQuery = query
		got, err := Query(r, nil, names)
		if wantErr != nil {
			if ferr, ok := errors.AsType[*countmill.FieldError](err); !ok || !strings.HasPrefix(ferr.Problem, "is not well formed: ") {
				t.Fatalf("got %v, net/url %v", err, wantErr)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for name, values := range want {
			n += len(values)
			if !got.Has(name) || got.Get(name) != values[0] || !slices.Equal(got.All(name), values) {
				t.Fatalf("%q: got %q, want %q", name, got.All(name), values)
			}
		}
		if len(got) != n {
			t.Fatalf("got %q, net/url has %q", got, want)
		}
	})
}
