package command

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/auth"
)

func TestShareWritesALinkThatReadsOnePrefix(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	got := try(t, nil, "share", "page:", "--expires", "2d", "--public", "--server", "https://count.example.com/mill/", "--file", path)
	link, err := url.Parse(strings.TrimSpace(got.out))
	if got.code != 0 || err != nil {
		t.Fatalf("got %+v, %v", got, err)
	}
	if link.Host != "count.example.com" || link.Path != "/mill/" || link.RawQuery != "" {
		t.Errorf("got the link %s, want https://count.example.com/mill/ and the token behind #", link)
	}
	hash, err := url.ParseQuery(link.Fragment)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := auth.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tokens.Authenticate(hash.Get("token"))
	if err != nil || c.Name != "share-page" {
		t.Fatalf("the link's token: got %+v, %v, want share-page", c, err)
	}
	for _, scope := range auth.Scopes() {
		if c.Has(scope) != (scope == auth.Read) {
			t.Errorf("the link has the scope %s: %t", scope, c.Has(scope))
		}
	}
	if c.Check("page:/home") != nil || c.Check("shop:a") == nil {
		t.Error("the link reads other counters than those under page:")
	}
	if !tokens.Public("page:/home") || tokens.Public("shop:a") || tokens.Public("page") {
		t.Error("badges are public for other counters than those under page:")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil { // revoked
		t.Fatal(err)
	}
	for range 2 { // an empty file counts the second time
		tokens.Reload(t.Context())
	}
	if _, err := tokens.Authenticate(hash.Get("token")); err == nil || tokens.Public("page:/home") {
		t.Errorf("after its line is removed: got %v, and public %t", err, tokens.Public("page:/home"))
	}
}

func TestShareEndsAfterThirtyDays(t *testing.T) {
	t.Parallel()
	got := try(t, nil, "share", "a/b c")
	link, line, _ := strings.Cut(strings.TrimSpace(got.out), "\n")
	if !strings.HasPrefix(link, "http://127.0.0.1:8080/#token=cmtok_") {
		t.Errorf("got the link %q", link)
	}
	tokens, err := auth.Parse([]byte(line))
	if err != nil || len(tokens) != 1 || tokens[0].Name != "share-a-b-c" || tokens[0].Public {
		t.Fatalf("got the line %s, %v", line, err)
	}
	if left := time.Until(tokens[0].Expires); left < 29*24*time.Hour || left > 30*24*time.Hour {
		t.Errorf("the link works for %s, want 30 days", left)
	}
}

func TestShareRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "name one PREFIX"},
		{[]string{""}, "name one PREFIX"},
		{[]string{strings.Repeat("x", 501)}, "PREFIX: is too long (limit: 500 bytes)"},
		{[]string{"page:", "--server", "count.example.com"}, "--server: must be the address of the page"},
		{[]string{"page:", "--expires", "soon"}, "--expires: must be a time to come"},
		{[]string{"page:", "--name", "a b"}, "--name: has other characters than A-Z"},
	} {
		try(t, nil, append([]string{"share"}, tc.args...)...).wantError(t, 2, tc.want)
	}
}
