package app

import (
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
)

// A key belongs to its caller. An id belongs to its counter or its sequence, for all callers: docs/howto/secure.md has
// this as a table, and the remedy for callers who do not trust each other.
func TestIdsAndKeysOfTwoCallers(t *testing.T) {
	t.Parallel()
	every := []auth.Scope{auth.Publish, auth.Read, auth.Admin}
	file, secrets := authtest.File(t, auth.Token{Name: "a", Scopes: every}, auth.Token{Name: "b", Scopes: every})
	r := startWith(t, Config{Tokens: file})
	// both sends a request as each caller, and returns the answer to the second.
	both := func(path, body string, header ...string) (status int, text string) {
		for _, secret := range secrets {
			status, text = r.call(t, "POST", path, body, append([]string{"Authorization", "Bearer " + secret}, header...)...)
			if secret == secrets[0] && status >= 300 {
				t.Fatalf("%s %s: got %d %s", path, body, status, text)
			}
		}
		return status, text
	}
	const increments, next = "/v1/increments", "/v1/sequences/next"
	both(increments, `{"counter":"keyed"}`, "Idempotency-Key", "k")
	both(increments, `{"counter":"shared","delta":5,"id":"x"}`)
	if status, text := r.call(t, "POST", increments, `{"counter":"shared","delta":7,"id":"x"}`, "Authorization", "Bearer "+secrets[1]); status != 422 || !strings.Contains(text, ":ids-reused") {
		t.Errorf("another delta under the id of another caller: got %d %s, want 422 ids-reused", status, text)
	}
	for i, secret := range secrets { // names of their own
		r.call(t, "POST", increments, `{"counter":"own:`+string("ab"[i])+`","id":"x"}`, "Authorization", "Bearer "+secret)
	}
	if status, text := both(next, `{"sequence":"shared","id":"x"}`); status != 200 || !strings.Contains(text, `{"value":1}`) {
		t.Errorf("the id of another caller on a sequence: got %d %s, want the same value", status, text)
	}
	_, text := r.call(t, "GET", "/v1/totals?counter=keyed&counter=shared&counter=own:a&counter=own:b", "", "Authorization", "Bearer "+secrets[0])
	for _, want := range []string{`"keyed","total":2,`, `"shared","total":5,`, `"own:a","total":1,`, `"own:b","total":1,`} {
		if !strings.Contains(text, want) {
			t.Errorf("got totals %s, want %s", text, want)
		}
	}
	if status, text := both("/v1/reset", `{"counter":"shared","id":"november"}`); status != 200 || !strings.Contains(text, `"removed":5`) {
		t.Errorf("the id of another caller's reset: got %d %s, want the same answer", status, text)
	}
}
