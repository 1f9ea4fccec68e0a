//go:build unix

package auth

import (
	"os"
	"syscall"
)

// keepOwner gives next the owner and the mode of the file at path: the server's user has to read it.
func keepOwner(next *os.File, path string) error {
	was, err := os.Stat(path)
	if err != nil {
		return err
	}
	is, err := next.Stat()
	if err != nil {
		return err
	}
	old, okOld := was.Sys().(*syscall.Stat_t)
	own, okOwn := is.Sys().(*syscall.Stat_t)
	if okOld && okOwn && (old.Uid != own.Uid || old.Gid != own.Gid) {
		if err := next.Chown(int(old.Uid), int(old.Gid)); err != nil {
			return err
		}
	}
	return next.Chmod(was.Mode().Perm())
}
