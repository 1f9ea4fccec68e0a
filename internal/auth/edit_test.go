package auth

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func tokenOf(t *testing.T, name string) Token {
	t.Helper()
	_, token := newToken(t, Token{Name: name, Scopes: []Scope{Read}})
	return token
}

// Remove takes a line away and leaves every other byte.
func TestRemoveKeepsOtherLines(t *testing.T) {
	t.Parallel()
	a, b := tokenOf(t, "a"), tokenOf(t, "b")
	path := filepath.Join(t.TempDir(), "tokens")
	for text, want := range map[string]string{
		"# first\n\n" + a.Line() + "\n  " + b.Line() + "  \r\n{\"newer\":1}\n# last": "# first\n\n  " + b.Line() + "  \r\n{\"newer\":1}\n# last",
		b.Line() + "\n" + a.Line():                   b.Line() + "\n",
		a.Line() + "\n" + b.Line() + "\n" + a.Line(): b.Line() + "\n", // listed twice
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if removed, err := Remove(path, "a", ""); err != nil || removed.hash != a.hash {
			t.Errorf("got %+v, %v", removed, err)
		}
		if got := read(t, path); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An edit that fails leaves the file, and nothing beside it.
func TestEditThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	a := tokenOf(t, "a")
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, a)
	before := read(t, path)
	for name, err := range map[string]error{
		"listed twice":          Append(path, a),
		`no token is named "b"`: func() error { _, err := Remove(path, "b", ""); return err }(),
		`and has the ID "zz"`:   func() error { _, err := Remove(path, "a", "zz"); return err }(),
		"no such file or d":     func() error { _, err := Remove(path+"/x", "b", ""); return err }(),
	} {
		if err == nil || (!strings.Contains(err.Error(), name) && !strings.Contains(err.Error(), "not a directory")) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) || read(t, path) != before {
		t.Errorf("the new file is there (%v), or the file was changed", err)
	}
}

// A file keeps its mode, and a link stays a link. A new file is for its owner only.
func TestEditKeepsModeAndLink(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	dir := t.TempDir()
	path, link := filepath.Join(dir, "tokens"), filepath.Join(dir, "link")
	must(t, os.Symlink(path, link))
	write(t, path, tokenOf(t, "a"))
	must(t, os.Chmod(path, 0o640))
	must(t, Append(link, tokenOf(t, "b")))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 || strings.Count(read(t, path), "\n") != 2 {
		t.Errorf("got %v, %v and %q", info.Mode(), err, read(t, path))
	}
	if target, err := os.Readlink(link); err != nil || target != path {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	fresh := filepath.Join(dir, "fresh")
	must(t, Append(fresh, tokenOf(t, "a")))
	if info, err := os.Stat(fresh); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a new file: got %v, %v", info.Mode(), err)
	}
}

// Of several edits at once each is in the file, or has an error.
func TestEditsAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	errs := make([]error, 20)
	var all sync.WaitGroup
	for i := range errs {
		token := tokenOf(t, "a")
		all.Go(func() { errs[i] = Append(path, token) })
	}
	all.Wait()
	good := 0
	for _, err := range errs {
		switch {
		case err == nil:
			good++
		case !strings.Contains(err.Error(), "another command changes the tokens"):
			t.Error(err)
		}
	}
	if got := strings.Count(read(t, path), "\n"); good == 0 || got != good {
		t.Errorf("%d lines after %d edits without an error", got, good)
	}
}

// The last use of a name is that of the latest of its tokens, and outlives a change of the file.
func TestLastUsed(t *testing.T) {
	t.Parallel()
	first, one := newToken(t, Token{Name: "a", Scopes: []Scope{Read}})
	_, two := newToken(t, Token{Name: "a", Scopes: []Scope{Read}})
	over, past := newToken(t, Token{Name: "over", Scopes: []Scope{Read}, Expires: time.Now().Add(-time.Hour)})
	ts, path := opened(t, one, two, past)
	before := time.Now().Truncate(time.Second)
	if got := ts.LastUsed(); len(got) != 2 || !got["a"].IsZero() {
		t.Errorf("before the first use: got %v", got)
	}
	if _, err := ts.Authenticate(first); err != nil {
		t.Fatal(err)
	}
	if _, err := ts.Authenticate(over); err == nil {
		t.Fatal("an expired token is valid")
	}
	write(t, path, two, one)
	ts.Reload(t.Context())
	if got := ts.LastUsed(); got["a"].Before(before) || got["a"].After(time.Now()) || len(got) != 1 {
		t.Errorf("got %v, want now for a, and no token that is gone", got)
	}
}
