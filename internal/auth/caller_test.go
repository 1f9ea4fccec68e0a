package auth

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func limited(prefixes ...string) Caller {
	return Caller{Name: "x", token: &Token{Scopes: []Scope{Read}, Prefixes: prefixes}}
}

func TestCallerChecksCounters(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		caller  Caller
		counter string
		ok      bool
	}{
		{Caller{}, "x", true},
		{Caller{token: &Token{}}, "x", true},
		{limited("page:"), "page:", true},
		{limited("page:"), "page:/home", true},
		{limited("page:"), "page", false},
		{limited("page:"), "Page:/home", false},
		{limited("page:"), "xpage:", false},
		{limited("page:", "app:"), "app:x", true},
		{limited("page:", "app:"), "shop:x", false},
	} {
		err := tc.caller.Check(tc.counter)
		outside, ok := errors.AsType[*OutsideError](err)
		if (err == nil) != tc.ok || err != nil && (!ok || outside.Value != tc.counter || !strings.Contains(err.Error(), outside.Prefixes[0]+"*")) {
			t.Errorf("%v, %q: got %v, want ok %t", tc.caller.token, tc.counter, err, tc.ok)
		}
	}
	err := limited("a").CheckAll([]string{"a1", "b", "c"})
	if outside, ok := errors.AsType[*OutsideError](err); !ok || outside.Value != "b" || *outside.Index != 1 {
		t.Errorf("CheckAll: got %v, want b at index 1", err)
	}
	if err := limited("a").CheckAll([]string{"a", "ab"}); err != nil {
		t.Errorf("CheckAll of own counters: %v", err)
	}
}

// Ranges cover exactly the names that Check accepts, and each once.
func TestRanges(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		caller Caller
		prefix string
		want   []string // nil: refused
	}{
		{Caller{}, "", []string{""}},
		{Caller{}, "x", []string{"x"}},
		{limited("b", "a"), "", []string{"a", "b"}},
		{limited("ab", "a", "abc", "b"), "", []string{"a", "b"}},
		{limited("page:", "app:"), "page:/h", []string{"page:/h"}},
		{limited("page:", "app:"), "p", []string{"page:"}},
		{limited("page:", "app:"), "page:", []string{"page:"}},
		{limited("page:", "page:/a"), "page:/a/b", []string{"page:/a/b"}},
		{limited("page:", "app:"), "s", nil},
		{limited("page:"), "pagex", nil},
	} {
		got, err := tc.caller.Ranges("prefix", tc.prefix)
		if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != (tc.want != nil) {
			t.Errorf("%v under %q: error %v, differs:\n%s", tc.caller.token, tc.prefix, err, diff)
		}
		for _, name := range []string{"a", "ab", "abc", "b", "c", "page:", "page:/a/b", "page:/home", "app:x", "x"} {
			in := 0
			for _, r := range got {
				if strings.HasPrefix(name, r) {
					in++
				}
			}
			want := 0
			if tc.caller.Check(name) == nil && strings.HasPrefix(name, tc.prefix) {
				want = 1
			}
			if in != want {
				t.Errorf("%v under %q: %q is in %d of %q, want %d", tc.caller.token, tc.prefix, name, in, got, want)
			}
		}
	}
}

func TestLimitIsShort(t *testing.T) {
	t.Parallel()
	err := limited("a", "b", "c", "d", "e", "f", "g").Check("x")
	if !strings.Contains(err.Error(), "(limit: a*, b*, c*, d*, e* and 2 more)") {
		t.Errorf("got %v", err)
	}
}
