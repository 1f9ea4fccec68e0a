//go:build unix

package httpserver

import "syscall"

// OpenFiles is how many files and connections the system lets this process have open, 0
// if it does not say.
func OpenFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur)
}
