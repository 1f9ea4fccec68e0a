//go:build unix && !solaris && !illumos && !aix

package transfer

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// holdSuffix makes the name of a lock of a file's name.
const holdSuffix = ".lock"

// Hold keeps other commands of this machine from working with path until release is called or this process
// ends, however it ends. The error is ErrHeld if another command holds it. Hold makes a file beside path, which release removes;
// after a kill the next command does. An empty path names no file.
//
// release may be called several times, and concurrently.
func Hold(path string) (release func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	lock := path + holdSuffix
	for {
		f, err := os.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := tryLock(f); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		// Whoever held it before may have removed the file after it was opened here. Then a third command could lock a new one.
		if here(f, lock) {
			return sync.OnceFunc(func() { _ = errors.Join(os.Remove(lock), f.Close()) }), nil
		}
		_ = f.Close()
	}
}

// here reports whether path names the open file.
func here(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(own, named)
}

// tryLock locks a file until it is closed. It does not wait.
func tryLock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}
