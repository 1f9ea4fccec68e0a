package pebble

import (
	"errors"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A logFS ends the process in order when the write-ahead log cannot be written. Without it Pebble
// panics when it begins a new log, and no caller can recover from that.
//
// It also syncs the name of a new manifest before Pebble makes the marker that names it. Pebble syncs
// the file but not its name. A file system may keep the newer of two names and lose the older: after a
// loss of power the marker would name a missing manifest, and nobody could open the directory.
//
// Files in other directories belong to backups. Their errors do not end the process.
type logFS struct {
	vfs.FS
	dir   string
	doom  *doom
	guard *guard
	// pauses delays tables after a refused one.
	pauses *pauses
}

func (f logFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	var file vfs.File
	f.pauses.wait(c)
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

// MkdirAll makes a backup's directory with access for its owner alone.
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

// mayChange returns an error if another directory now has this one's name. Pebble would overwrite and
// remove the files of another database.
func (f logFS) mayChange(name string) error {
	if f.FS.PathDir(name) != f.dir {
		return nil
	}
	return f.guard.same()
}

// OpenDir returns a directory whose failed sync ends the process. Pebble would panic, even while it
// opens the database.
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
	if !strings.HasSuffix(name, ".log") || f.FS.PathDir(name) != f.dir || f.check(err) != nil {
		return file, err
	}
	f.guard.follow(name)
	return logFile{file, f}, nil
}

func (f logFS) check(err error) error {
	if err != nil && f.doom.opened.Load() { // while the store opens, Open returns the error
		f.doom.end("write-ahead log: " + err.Error())
	}
	return err
}

// Unwrap lets Pebble find features of the file system below.
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
