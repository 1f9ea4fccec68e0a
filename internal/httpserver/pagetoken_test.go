package httpserver

import (
	"errors"
	"testing"
)

func TestLimit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		params Params
		want   int // 0: refused
	}{
		{nil, 7}, {Params{{"limit", "1"}}, 1}, {Params{{"limit", "20"}}, 20},
		{Params{{"limit", "0"}}, 0}, {Params{{"limit", "21"}}, 0}, {Params{{"limit", "-1"}}, 0}, {Params{{"limit", ""}}, 0}, {Params{{"limit", "1.0"}}, 0},
	} {
		got, err := tc.params.Limit(7, 20)
		if got != tc.want || (err == nil) != (tc.want > 0) {
			t.Errorf("%v: %d, %v, want %d", tc.params, got, err, tc.want)
		}
	}
}

func TestPageTokens(t *testing.T) {
	t.Parallel()
	errOther := errors.New("not one of these")
	check := func(after string) error {
		if after == "not this" {
			return errOther
		}
		return nil
	}
	after := func(token string) (string, error) { return Params{{"page_token", token}}.After(check) }
	for _, want := range []string{"a", "page:/ä", "\xff"} {
		if got, err := after(PageToken(want)); got != want || err != nil {
			t.Errorf("%q came back as %q, %v", want, got, err)
		}
	}
	if got := PageToken(""); got != "" {
		t.Errorf("the end has the token %q", got)
	}
	if got, err := (Params{}).After(check); got != "" || err != nil {
		t.Errorf("without a token: %q, %v", got, err)
	}
	for _, token := range []string{"", "MQ", PageToken("not this"), PageToken("a") + "=", "Mmk", "MWF", "%"} {
		if got, err := after(token); err == nil {
			t.Errorf("token %q is taken for %q", token, got)
		}
	}
}
