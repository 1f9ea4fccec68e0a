package httpserver

import (
	"errors"
	"net/url"
	"testing"
)

func TestPageTokens(t *testing.T) {
	t.Parallel()
	errOther := errors.New("not one of these")
	check := func(after string) error {
		if after == "not this" {
			return errOther
		}
		return nil
	}
	after := func(token string) (string, error) { return Params{url.Values{"page_token": {token}}}.After(check) }
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
