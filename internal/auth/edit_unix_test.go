//go:build unix

package auth

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The server's user can read its file after root has changed it.
func TestEditKeepsOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, tokenOf(t, "a"))
	must(t, os.Chown(path, 65534, 65533))
	must(t, Append(path, tokenOf(t, "b")))
	info, err := os.Stat(path)
	must(t, err)
	if is := info.Sys().(*syscall.Stat_t); is.Uid != 65534 || is.Gid != 65533 {
		t.Errorf("the file is of %d:%d, and was of 65534:65533", is.Uid, is.Gid)
	}
}
