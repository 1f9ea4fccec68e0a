//go:build !unix

package api

// openFiles is 0: the system does not say.
func openFiles() uint64 { return 0 }
