package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// write replaces the file as a person would.
func write(t *testing.T, path string, tokens ...Token) {
	t.Helper()
	var text strings.Builder
	for _, token := range tokens {
		text.WriteString(token.Line() + "\n")
	}
	must(t, os.WriteFile(path, []byte(text.String()), 0o600))
}

func opened(t *testing.T, tokens ...Token) (*Tokens, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, tokens...)
	ts, err := Open(path, nil)
	must(t, err)
	return ts, path
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	var secrets []string
	var tokens []Token
	for _, name := range []string{"first", "middle", "last"} {
		secret, token := newToken(t, Token{Name: name, Scopes: []Scope{Read}})
		secrets, tokens = append(secrets, secret), append(tokens, token)
	}
	old, expired := newToken(t, Token{Name: "old", Scopes: []Scope{Read}, Expires: time.Now().Add(-time.Second)})
	young, valid := newToken(t, Token{Name: "young", Scopes: []Scope{Read}, Expires: time.Now().Add(time.Hour)})
	ts, _ := opened(t, append(tokens, expired, valid)...)
	for i, secret := range append(secrets, young) {
		want := append(tokens, valid)[i].Name
		if c, err := ts.Authenticate(secret); err != nil || c.Name != want || !c.Has(Read) || c.Has(Admin) {
			t.Errorf("%s: got %+v, %v", want, c, err)
		}
		for _, wrong := range []string{secret[:len(secret)-1], secret + "A", strings.ToUpper(secret), secret[len(mark):], " " + secret} {
			if c, err := ts.Authenticate(wrong); !errors.Is(err, ErrUnknown) || c != (Caller{}) {
				t.Errorf("changed: got %+v, %v", c, err)
			}
		}
	}
	if c, err := ts.Authenticate(old); !errors.Is(err, ErrExpired) || c != (Caller{}) {
		t.Errorf("expired: got %+v, %v", c, err)
	}
	for _, wrong := range []string{"", mark, strings.Repeat("x", 1<<20), tokens[0].hashText()} {
		if _, err := ts.Authenticate(wrong); !errors.Is(err, ErrUnknown) {
			t.Errorf("%.20q: got %v", wrong, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	must(t, os.WriteFile(bad, []byte("x"), 0o600))
	for path, want := range map[string]string{
		dir + "/none": "none: there is no such file; `countmill token new`",
		dir:           "it is not a regular file",
		"/dev/zero":   "it is not a regular file",
		bad:           "bad: line 1: is not a JSON object",
	} {
		if _, err := Open(path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

// A changed file takes effect. An invalid one does not, and is logged once as an error.
func TestReload(t *testing.T) {
	t.Parallel()
	first, one := newToken(t, Token{Name: "one", Scopes: []Scope{Read}})
	second, two := newToken(t, Token{Name: "two", Scopes: []Scope{Read}})
	ts, path := opened(t, one)
	var logged bytes.Buffer
	ts.log = slog.New(slog.NewTextHandler(&logged, nil))
	taken := func(secret string) bool { _, err := ts.Authenticate(secret); return err == nil }

	write(t, path, two)
	ts.Reload(t.Context())
	if taken(first) || !taken(second) || ts.Err() != nil {
		t.Errorf("after the change: first %t, second %t, %v", taken(first), taken(second), ts.Err())
	}
	for _, text := range []string{second, "\n" + two.Line()[:40]} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		logged.Reset()
		ts.Reload(t.Context())
		ts.Reload(t.Context())
		if !taken(second) || ts.Err() == nil || ts.Len() != 1 {
			t.Errorf("with a bad file %q: taken %t, %v, %d tokens", text, taken(second), ts.Err(), ts.Len())
		}
		if got := logged.String(); strings.Count(got, "level=ERROR") != 1 || strings.Contains(got, second) {
			t.Errorf("with a bad file the log is %s, want one error without the token", got)
		}
	}
	must(t, os.Remove(path))
	ts.Reload(t.Context())
	if !taken(second) || ts.Err() == nil || !strings.Contains(ts.Err().Error(), "no such file") {
		t.Errorf("without a file: taken %t, %v", taken(second), ts.Err())
	}
	write(t, path, two) // the same as before, and valid again
	logged.Reset()
	ts.Reload(t.Context())
	ts.Reload(t.Context())
	if !taken(second) || ts.Err() != nil || strings.Count(logged.String(), `level=INFO msg="tokens reloaded"`) != 1 {
		t.Errorf("valid again: accepted %t, %v, log %s", taken(second), ts.Err(), logged.String())
	}
}

// A file without tokens lets nobody in. A file that is empty only for a moment, while an editor saves
// it, changes nothing.
func TestEmptiedFileLetsNobodyIn(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n# all of them were taken back\n\n"} {
		synctest.Test(t, func(t *testing.T) {
			secret, token := newToken(t, Token{Name: "a", Scopes: []Scope{Read}})
			ts, path := opened(t, token)
			c, err := ts.Authenticate(secret)
			must(t, err)
			var logged bytes.Buffer
			ts.log = slog.New(slog.NewTextHandler(&logged, nil))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go ts.Watch(ctx, time.Second)
			empty := func() {
				must(t, os.WriteFile(path, []byte(text), 0o600))
			}
			empty()
			<-time.After(time.Second + againAfter/2)
			write(t, path, token)
			<-time.After(3 * time.Second)
			if _, err := ts.Authenticate(secret); err != nil || ts.Err() != nil || logged.Len() > 0 {
				t.Errorf("after a moment without tokens: got %v, %v, log %s", err, ts.Err(), logged.String())
			}
			empty()
			<-time.After(2 * time.Second)
			synctest.Wait()
			if _, err := ts.Authenticate(secret); !errors.Is(err, ErrUnknown) || ts.Len() != 0 || ts.Err() != nil || c.Current() {
				t.Errorf("with %q: got %v, %d tokens, %v, current %t; want none", text, err, ts.Len(), ts.Err(), c.Current())
			}
			<-time.After(10 * time.Second)
			if got := logged.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "every call is refused") {
				t.Errorf("the log is %s, want one warning", got)
			}
			write(t, path, token)
			<-time.After(2 * time.Second)
			synctest.Wait()
			if _, err := ts.Authenticate(secret); err != nil {
				t.Errorf("with tokens again: %v", err)
			}
			again, err := Open(path, nil)
			if err != nil || again.Len() != 1 {
				t.Error(err)
			}
			empty()
			if again, err = Open(path, nil); err != nil || again.Len() != 0 {
				t.Errorf("opened without tokens: %v, want every call refused", err)
			}
		})
	}
}

// A file that other users can write is refused: they could add tokens of their own.
func TestFileThatOthersCanWrite(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	first, one := newToken(t, Token{Name: "one", Scopes: []Scope{Read}})
	second, two := newToken(t, Token{Name: "two", Scopes: []Scope{Read}})
	ts, path := opened(t, one)
	for _, mode := range []os.FileMode{0o620, 0o602, 0o666, 0o622, 0o664} {
		write(t, path, two)
		must(t, os.Chmod(path, mode))
		want := fmt.Sprintf("%s: its mode is %04o, so other users can write it: chmod go-w", path, mode)
		if _, err := Open(path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("at the start: got %v, want %q", err, want)
		}
		ts.Reload(t.Context())
		if err := ts.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("while running: got %v, want %q", err, want)
		}
		_, err := ts.Authenticate(first)
		if _, other := ts.Authenticate(second); err != nil || other == nil {
			t.Errorf("%o: the tokens of before: %v, those of the file: %v", mode, err, other)
		}
	}
	for _, mode := range []os.FileMode{0o600, 0o640, 0o644, 0o400, 0o444} {
		must(t, os.Chmod(path, mode))
		ts.Reload(t.Context())
		if _, err := ts.Authenticate(second); err != nil || ts.Err() != nil {
			t.Errorf("%o: got %v, %v, want the new tokens", mode, err, ts.Err())
		}
	}
}

// A new version of the same size and time takes effect too.
func TestWatchSeesWhatTimesDoNotShow(t *testing.T) {
	t.Parallel()
	first, one := newToken(t, Token{Name: "a", Scopes: []Scope{Read}})
	second, two := newToken(t, Token{Name: "b", Scopes: []Scope{Read}})
	ts, path := opened(t, one)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	write(t, path, two)
	must(t, os.Chtimes(path, at, at))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go ts.Watch(ctx, time.Second)
		<-time.After(1500 * time.Millisecond)
		synctest.Wait()
		if _, err := ts.Authenticate(first); err == nil {
			t.Error("the removed token is still accepted")
		}
		if _, err := ts.Authenticate(second); err != nil {
			t.Errorf("the new token: %v", err)
		}
	})
}

// A stream asks whether its token is still valid with the same rights.
func TestCurrent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		secret, token := newToken(t, Token{Name: "a", Scopes: []Scope{Read}, Expires: time.Now().Add(time.Hour)})
		_, other := newToken(t, Token{Name: "other", Scopes: []Scope{Read}})
		ts, path := opened(t, token)
		c, err := ts.Authenticate(secret)
		if err != nil || !c.Current() {
			t.Fatalf("got %v, current %t", err, c.Current())
		}
		for name, tc := range map[string]struct {
			change func(*Token)
			want   bool
		}{
			"unchanged": {func(*Token) {}, true},
			"prefixes":  {func(n *Token) { n.Prefixes = []string{"x"} }, false},
			"scopes":    {func(n *Token) { n.Scopes = []Scope{Publish} }, false},
			"name":      {func(n *Token) { n.Name = "b" }, false},
			"removed":   {func(n *Token) { *n = other }, false},
		} {
			changed := token
			tc.change(&changed)
			write(t, path, other)
			ts.Reload(t.Context())
			if changed.hash == other.hash {
				write(t, path, changed)
			} else {
				write(t, path, other, changed)
			}
			ts.Reload(t.Context())
			if got := c.Current(); got != tc.want {
				t.Errorf("%s: current %t, want %t", name, got, tc.want)
			}
		}
		write(t, path, token)
		ts.Reload(t.Context())
		<-time.After(time.Hour)
		if c.Current() {
			t.Error("expired: current")
		}
	})
	if !(Caller{}).Current() {
		t.Error("nobody: not current")
	}
}

// Badges are public by a line that says so, for its prefixes, until it expires.
func TestPublic(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	var text strings.Builder
	for prefix, token := range map[string]Token{
		"page:": {Name: "a", Public: true},
		"shop:": {Name: "b"},
		"past:": {Name: "c", Public: true, Expires: time.Now().Add(-time.Minute)},
	} {
		token.Scopes, token.Prefixes = []Scope{Read}, []string{prefix}
		_, made, err := New(token)
		must(t, err)
		text.WriteString(made.Line() + "\n")
	}
	must(t, os.WriteFile(path, []byte(text.String()), 0o600))
	tokens, err := Open(path, nil)
	must(t, err)
	for counter, want := range map[string]bool{"page:/home": true, "page": false, "shop:a": false, "past:a": false} {
		if got := tokens.Public(counter); got != want {
			t.Errorf("%s is public: got %t, want %t", counter, got, want)
		}
	}
	for _, bad := range []Token{
		{Name: "a", Public: true, Scopes: []Scope{Read}},
		{Name: "a", Public: true, Scopes: []Scope{Publish}, Prefixes: []string{"page:"}},
	} {
		if _, _, err := New(bad); err == nil || !strings.Contains(err.Error(), "public: needs the scope read, and prefixes") {
			t.Errorf("%+v: got %v, want it to be refused", bad, err)
		}
	}
}
