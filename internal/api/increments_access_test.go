package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/auth/authtest"
)

// One counter that is not the caller's refuses the whole request, and is named.
func TestCountersOutsideAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		req         request
		index, line int // -1: none
	}{
		{"one", post(`{"counter":"shop:a"}`), -1, -1},
		{"array of one", post(`[{"counter":"shop:a"}]`), -1, -1},
		{"array", post(`[{"counter":"page:a"},{"counter":"shop:a","id":"x"},{"counter":"b"}]`), 1, -1},
		{"lines", lines("{\"counter\":\"page:a\"}\n{\"counter\":\"page:b\"}\n{\"counter\":\"shop:a\"}\n"), -1, 3},
		{"two lines of three", lines("{\"counter\":\"shop:a\"}\n{\"counter\":\"page:b\"}\n{\"counter\":\"shop:b\"}\n"), -1, 1},
		{"one line", lines(`{"counter":"shop:a"}`), -1, 1},
		{"more lines than are told", lines(strings.Repeat("{\"counter\":\"shop:a\"}\n", maxLines+1)), -1, 1},
		{"with a key", post(`[{"counter":"page:a"},{"counter":"shop:a"}]`, keyHeader, "k"), 1, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			sender := &recorder{}
			resp := tc.req.do(authtest.As(t, newIncrements(sender, IncrementsConfig{}), "x", "page:", "app:"))
			p := problemOf(t, resp)
			if p.Status != http.StatusForbidden || p.Field != "counter" || p.Limit != "page:*, app:*" {
				t.Errorf("got %+v, want 403 with the prefixes", p)
			}
			if got := [2]int{orNone(p.Index), orNone(p.Line)}; got != [2]int{tc.index, tc.line} {
				t.Errorf("got index and line %v, want %v (-1: none)", got, [2]int{tc.index, tc.line})
			}
			want := map[string][]int{"lines": {3}, "two lines of three": {1, 3}, "one line": {1}}[tc.name]
			if tc.name == "more lines than are told" {
				for n := range maxLines {
					want = append(want, n+1)
				}
			}
			if !slices.Equal(p.Lines, want) {
				t.Errorf("got lines %v, want %v", p.Lines, want)
			}
			if sent := sender.got(); len(sent) > 0 {
				t.Errorf("sent %+v, want nothing", sent)
			}
		})
	}
}

func orNone(n *int) int {
	if n == nil {
		return -1
	}
	return *n
}

// The caller's name goes with the key, and with nothing else.
func TestCallerIsThePrincipalOfItsKeys(t *testing.T) {
	t.Parallel()
	sender := &recorder{}
	h := newIncrements(sender, IncrementsConfig{})
	post(`{"counter":"page:a"}`, keyHeader, "k").do(authtest.As(t, h, "web", "page:"))
	post(`{"counter":"page:a"}`).do(authtest.As(t, h, "web"))
	post(`{"counter":"page:a"}`, keyHeader, "k").do(h)
	got := sender.got()
	if len(got) != 3 {
		t.Fatalf("got %+v, want three", got)
	}
	for i, want := range []sent{{Keyed: true, Principal: "web", Key: "k"}, {}, {Keyed: true, Key: "k"}} {
		if got[i].Keyed != want.Keyed || got[i].Principal != want.Principal || got[i].Key != want.Key {
			t.Errorf("%d: got %+v, want %+v", i, got[i], want)
		}
	}
}
