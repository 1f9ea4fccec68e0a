// Package authtest makes tokens for tests.
package authtest

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/auth"
)

// File writes a file of the tokens and returns its path and their secrets, in their order.
func File(tb testing.TB, tokens ...auth.Token) (path string, secrets []string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "tokens")
	return path, Write(tb, path, tokens...)
}

// Write replaces a file by one of new tokens and returns their secrets.
func Write(tb testing.TB, path string, tokens ...auth.Token) (secrets []string) {
	tb.Helper()
	var text strings.Builder
	for _, token := range tokens {
		secret, made, err := auth.New(token)
		if err != nil {
			tb.Fatal(err)
		}
		secrets = append(secrets, secret)
		text.WriteString(made.Line() + "\n")
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	return secrets
}

// Open is File, opened.
func Open(tb testing.TB, tokens ...auth.Token) (*auth.Tokens, []string) {
	tb.Helper()
	path, secrets := File(tb, tokens...)
	opened, err := auth.Open(path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return opened, secrets
}

// As calls h as a caller of whom only the prefixes matter; without any, all counters are
// the caller's.
func As(tb testing.TB, h http.Handler, name string, prefixes ...string) http.Handler {
	tb.Helper()
	return With(tb, h, auth.Token{Name: name, Scopes: auth.Scopes(), Prefixes: prefixes})
}

// With calls h as the caller with a token.
func With(tb testing.TB, h http.Handler, token auth.Token) http.Handler {
	tb.Helper()
	tokens, secrets := Open(tb, token)
	caller, err := tokens.Authenticate(secrets[0])
	if err != nil {
		tb.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(auth.With(r.Context(), caller)))
	})
}
