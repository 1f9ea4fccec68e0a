package pebble

import (
	"errors"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A logFS ends the process in order when the write-ahead log cannot be written. Left
// alone, Pebble panics where it begins a new log, in a way that nobody can recover from.
//
// It also puts the name of a new manifest on disk before Pebble makes the marker that names
// it. Pebble syncs the file and leaves its name to the file system: on one that may keep
// the newer of two names without the older, a loss of power left a marker without its
// manifest, and a directory that nobody could open.
//
// Files in other directories are those of backups, whose errors end nothing.
type logFS struct {
	vfs.FS
	dir  string
	doom *doom
	home *home
}

func (f logFS) guards(name string) bool {
	return strings.HasSuffix(name, ".log") && f.FS.PathDir(name) == f.dir
}

func (f logFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	var file vfs.File
	err := f.mayChange(name)
	if err == nil {
		file, err = f.FS.Create(name, c)
	}
	if err == nil && strings.HasPrefix(f.FS.PathBase(name), "MANIFEST-") {
		if err := syncDir(f.FS, f.FS.PathDir(name)); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return f.wrap(name, file, err)
}

func (f logFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	var file vfs.File
	err := f.mayChange(newname)
	if err == nil {
		file, err = f.FS.ReuseForWrite(oldname, newname, c)
	}
	return f.wrap(newname, file, err)
}

// MkdirAll makes a backup's directory for its owner alone.
func (f logFS) MkdirAll(dir string, perm os.FileMode) error {
	if dir != f.dir {
		perm = privateDir
	}
	return f.FS.MkdirAll(dir, perm)
}

func (f logFS) Remove(name string) error {
	if err := f.mayChange(name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f logFS) Rename(oldname, newname string) error {
	if err := f.mayChange(newname); err != nil {
		return err
	}
	return f.FS.Rename(oldname, newname)
}

// mayChange refuses where another directory has the name of this one: Pebble would write
// its files over those of another database, and remove them.
func (f logFS) mayChange(name string) error {
	if f.FS.PathDir(name) != f.dir {
		return nil
	}
	return f.home.same()
}

// OpenDir returns a directory whose sync ends the process where it fails: Pebble panics,
// also while it opens.
func (f logFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil || name != f.dir {
		return dir, err
	}
	return dirFile{dir, f.doom}, nil
}

type dirFile struct {
	vfs.File
	doom *doom
}

func (f dirFile) Sync() error {
	err := f.File.Sync()
	if err != nil {
		f.doom.end("directory: " + err.Error())
	}
	return err
}

func (f logFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if !f.guards(name) {
		return file, err
	}
	if f.check(err) != nil {
		return file, err
	}
	f.home.follow(name)
	return logFile{file, f}, nil
}

func (f logFS) check(err error) error {
	if err != nil && f.doom.opened.Load() { // Open returns the error
		f.doom.end("write-ahead log: " + err.Error())
	}
	return err
}

// Unwrap is for Pebble, which looks for features of the file system below.
func (f logFS) Unwrap() vfs.FS { return f.FS }

type logFile struct {
	vfs.File
	fs logFS
}

func (f logFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.fs.check(err)
}

func (f logFile) Sync() error     { return f.fs.check(f.File.Sync()) }
func (f logFile) SyncData() error { return f.fs.check(f.File.SyncData()) }

func (f logFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	return fullSync, f.fs.check(err)
}
