package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A privateFS makes files that only their owner can read, with any umask. Pebble's default mode
// lets everybody read them, and an operator chooses the directory of a backup.
//
// If a mode cannot be changed, as on a file of another owner or on a file system without modes, it
// stays. The directory of a backup keeps other users out as well.
type privateFS struct{ vfs.FS }

const (
	privateFile = 0o600
	privateDir  = 0o700
)

func (p privateFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := p.FS.Create(name, c)
	return file, private(name, err)
}

func (p privateFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := p.FS.OpenReadWrite(name, c, opts...)
	return file, private(name, err)
}

func (p privateFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := p.FS.ReuseForWrite(oldname, newname, c)
	return file, private(newname, err)
}

func (p privateFS) Lock(name string) (io.Closer, error) {
	lock, err := p.FS.Lock(name)
	return lock, private(name, err)
}

// Link makes the file private under both names. If that fails, Pebble copies the file.
func (p privateFS) Link(oldname, newname string) error {
	if err := p.FS.Link(oldname, newname); err != nil {
		return err
	}
	if err := os.Chmod(newname, privateFile); err != nil {
		// Not %w: after a permission error Pebble would not try to copy.
		return errors.Join(fmt.Errorf("link: %v", err), p.FS.Remove(newname))
	}
	return nil
}

// Unwrap lets Pebble find features of the file system below.
func (p privateFS) Unwrap() vfs.FS { return p.FS }

// private returns err if the file could not be made, otherwise it makes the file private.
func private(name string, err error) error {
	if err == nil {
		_ = os.Chmod(name, privateFile)
	}
	return err
}
