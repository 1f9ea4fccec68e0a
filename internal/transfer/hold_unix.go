//go:build unix && !solaris && !illumos && !aix

package transfer

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file until it is closed. It does not wait.
func tryLock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}
