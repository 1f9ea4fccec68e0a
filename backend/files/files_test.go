package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/buckettest"
)

func open(t *testing.T, dir string) *Bucket {
	t.Helper()
	b, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestBucket(t *testing.T) {
	t.Parallel()
	buckettest.Run(t, func(t *testing.T) backend.Bucket { return open(t, filepath.Join(t.TempDir(), "made", "here")) })
}

// Only the user of the process can read anything.
func TestPrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	dir := filepath.Join(t.TempDir(), "root")
	buckettest.Put(t, open(t, dir), "a/b", []byte("x"))
	err := filepath.Walk(dir, func(path string, info fs.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// No name and no symbolic link leads out of the directory.
func TestStaysInside(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	root, outside := filepath.Join(at, "root"), filepath.Join(at, "outside")
	b := open(t, root)
	if err := os.MkdirAll(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"../outside/new", "link/new", "link/deeper/new"} {
		if err := b.Put(t.Context(), name, strings.NewReader("x")); err == nil {
			t.Errorf("put %s: got no error", name)
		}
	}
	for _, name := range []string{"../outside/secret", "link/secret"} {
		if r, err := b.Get(t.Context(), name); err == nil {
			t.Errorf("get %s: got no error (closed: %v)", name, r.Close())
		}
		if err := b.Delete(t.Context(), name); err == nil {
			t.Errorf("delete %s: got no error", name)
		}
	}
	if found := buckettest.List(t, b, ""); len(found) > 0 {
		t.Errorf("the list has %v", found)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Errorf("outside are %v, %v", left, err)
	}
}

// A mounted disk has a directory that only root can read. The list of another such directory would lack backups.
func TestListOfAMount(t *testing.T) {
	t.Parallel()
	for name, unreadable := range map[string]bool{"lost+found": false, "a": true, "a/lost+found": true} {
		dir := t.TempDir()
		b := open(t, dir)
		buckettest.Put(t, b, "backups/x", []byte("x"))
		buckettest.Put(t, b, "z/backups/x", []byte("x"))
		locked := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(locked, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(locked, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := os.ReadDir(locked); err == nil {
			t.Skip("this user can read every directory")
		}
		n := 0
		var failed error
		for _, err := range b.List(t.Context(), "") {
			if failed = err; err == nil {
				n++
			}
		}
		if !unreadable && (n != 2 || failed != nil) || unreadable && !errors.Is(failed, fs.ErrPermission) {
			t.Errorf("%s cannot be read: got %d objects, %v", name, n, failed)
		}
	}
}

func TestOpenMissing(t *testing.T) {
	t.Parallel()
	if _, err := Open(filepath.Join(t.TempDir(), "no"), false); err == nil {
		t.Error("a missing directory was opened")
	}
}
