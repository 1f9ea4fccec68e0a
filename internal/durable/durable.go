// Package durable makes the names of files survive a crash.
package durable

import (
	"errors"
	"os"
	"runtime"
)

// SyncDir makes the names in a directory durable. open is os.Open, or that of an os.Root.
func SyncDir(open func(dir string) (*os.File, error), dir string) error {
	if runtime.GOOS == "windows" { // which cannot sync directories
		return nil
	}
	d, err := open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
