package pebble

import (
	"errors"
	"io/fs"

	pebbledb "github.com/cockroachdb/pebble/v2"
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
func (s *Store) countRestore() error {
	name := s.fs.PathJoin(s.cfg.Dir, copyFile)
	if _, err := s.fs.Stat(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	s.restores++
	if err := s.changeMeta(b, func(m *meta) { m.Restores = s.restores }); err != nil {
		return err
	}
	if err := b.Commit(pebbledb.Sync); err != nil {
		return err
	}
	s.cfg.Logger.Info("this directory was restored from a backup: sequences leave out values", "dir", s.cfg.Dir, "values", int64(store.RestoreSkip))
	if err := s.fs.Remove(name); err != nil {
		return err
	}
	return syncDir(s.fs, s.cfg.Dir)
}
