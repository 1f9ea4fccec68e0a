package pebble

import (
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill/store"
)

// copyFile is a file that only copies have (see Checkpoint). The first process that opens a copy for
// writing counts a restore in the meta record, and then removes the file. So sequences know that a lost
// process may have given more values than the copy has.
const copyFile = "countmill.copy"

// markCopy makes the file in the directory of a copy.
func markCopy(files vfs.FS, dir string) error {
	f, err := files.Create(files.PathJoin(dir, copyFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDir(files, dir)
}

// countRestore counts a restore if the directory is a copy. A kill between its two steps counts the
// restore twice: sequences then leave out more values.
func (d *directory) countRestore() error {
	name := d.fs.PathJoin(d.cfg.Dir, copyFile)
	if _, err := d.fs.Stat(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	m, err := getMeta(d.cfg.Dir, d.db)
	if err != nil {
		return err
	}
	m.Restores++
	if err := d.setMeta(m); err != nil {
		return err
	}
	d.restores = m.Restores
	d.cfg.Logger.Info("this directory was restored from a backup: sequences leave out values", "dir", d.cfg.Dir, "values", int64(store.RestoreSkip))
	if err := d.fs.Remove(name); err != nil {
		return err
	}
	return syncDir(d.fs, d.cfg.Dir)
}
