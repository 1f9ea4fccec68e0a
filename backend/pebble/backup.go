package pebble

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// ErrBackupDir means that a backup cannot be written to the directory. Nothing was written there.
var ErrBackupDir = errors.New("cannot take a backup")

// ErrBackupBusy means that another backup is running. Retry when it has ended.
var ErrBackupBusy = errors.New("another backup is under way")

// ErrNoBackupRoot means that Config.BackupRoot is empty, so the store may not write backups.
var ErrNoBackupRoot = errors.New("no directory of backups is configured")

// Backup copies the database to a directory below Config.BackupRoot, while folds go on. The directory
// must not exist, or must be empty. The copy contains every fold that returned before the call. It may
// contain folds that ran during the call, each of them completely or not at all.
//
// The copy gets its final name when it is complete and has been checked. So an interrupted backup is
// never mistaken for a complete one. A backup has the database's id and can be opened like it.
//
// to is absolute or relative to the root. Backup returns the absolute path. It follows no symbolic link
// below the root. No other user may have the right to change directories there.
//
// On the same file system Pebble makes hard links instead of copies. When ctx ends, Backup returns at
// once. Its unfinished copy is removed when Pebble stops; until then another call returns
// ErrBackupBusy.
func (s *Store) Backup(ctx context.Context, to string) (dir string, err error) {
	if err := s.enter(); err != nil {
		return "", err
	}
	if dir, err = s.checkBackupDir(to); err != nil || ctx.Err() != nil {
		s.closing.RUnlock()
		return "", cmp.Or(err, ctx.Err())
	}
	select {
	case s.backing <- struct{}{}:
	default:
		s.closing.RUnlock()
		return "", ErrBackupBusy
	}
	done := make(chan error, 1)
	go func() { // Close waits for this goroutine
		defer s.closing.RUnlock()
		err := s.backup(ctx, dir)
		<-s.backing // before the answer, so that the caller can start another backup at once
		done <- err
	}()
	select {
	case err := <-done:
		return dir, err
	case <-ctx.Done():
		return dir, fmt.Errorf("backup to %s: %w", dir, ctx.Err())
	}
}

// checkBackupDir looks at nothing outside the root, and its errors name nothing that it found there.
func (s *Store) checkBackupDir(to string) (string, error) {
	root := s.cfg.BackupRoot
	if root == "" {
		return "", ErrNoBackupRoot
	}
	refuse := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%q %w: %s", to, ErrBackupDir, fmt.Sprintf(format, args...))
	}
	below := filepath.Clean(to)
	if filepath.IsAbs(to) {
		var err error
		if below, err = filepath.Rel(root, to); err != nil {
			return refuse("it is not below %s", root)
		}
	}
	switch {
	case to == "" || below == ".":
		return refuse("name a directory below %s", root)
	case !filepath.IsLocal(below):
		return refuse("it is not below %s", root)
	}
	if info, err := s.fs.Stat(root); err != nil || !info.IsDir() {
		return refuse("%s is not a directory: make it, or mount it", root)
	}
	if inside(s.fs.PathJoin(s.resolve(root), below), s.resolve(s.cfg.Dir)) {
		return refuse("it is in the data directory")
	}
	if wrong := s.checkBelow(root, below); wrong != "" {
		return refuse("%s", wrong)
	}
	return s.fs.PathJoin(root, below), nil
}

// checkBelow returns a text about the first fault of a path below the root, or "" if it has none. The
// last directory must be absent or empty. The directories above it must exist. None of them may be a
// symbolic link.
func (s *Store) checkBelow(root, below string) string {
	at, names := root, strings.Split(below, string(filepath.Separator))
	for i, name := range names {
		at = s.fs.PathJoin(at, name)
		part, last := filepath.Join(names[:i+1]...), i == len(names)-1
		info, err := s.lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && last:
			return ""
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Sprintf("%s does not exist: make it, or name a directory that exists", part)
		case err != nil:
			return fmt.Sprintf("%s cannot be read: %v", part, cause(err))
		case info.Mode()&fs.ModeSymlink != 0:
			return fmt.Sprintf("%s is a symbolic link: name the directory itself", part)
		case !info.IsDir():
			return fmt.Sprintf("%s is not a directory", part)
		}
	}
	switch found, err := s.fs.List(at); {
	case err != nil:
		return fmt.Sprintf("it cannot be read: %v", cause(err))
	case len(found) > 0:
		return "it is not empty: name a new directory, or an empty one"
	}
	return ""
}

// lstat describes a symbolic link itself, not its target, on the machine's file system.
func (s *Store) lstat(path string) (fs.FileInfo, error) {
	if s.cfg.FS == nil {
		return os.Lstat(path)
	}
	return s.fs.Stat(path)
}

// cause returns the error without the path.
func cause(err error) error {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return errors.New("the server's log says more")
}

// resolve follows symbolic links if the store is on the machine's own file system.
func (s *Store) resolve(dir string) string {
	if s.cfg.FS == nil {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return real
		}
	}
	return filepath.Clean(dir)
}

func inside(dir, of string) bool {
	return dir == of || strings.HasPrefix(dir, strings.TrimSuffix(of, "/")+"/")
}

// backup makes the copy in a directory next to dir, and renames it to dir in the last step.
func (s *Store) backup(ctx context.Context, dir string) (err error) {
	kept := commitCount{s.id, s.commits.synced.Load(), s.moments.newest()}
	partial := filepath.Clean(dir) + ".partial-" + strings.ToLower(rand.Text()[:8])
	defer func() {
		if r := recover(); r != nil { // Pebble panics if a directory cannot be synced
			err = fmt.Errorf("%v", r)
		}
		if err != nil {
			err = errors.Join(fmt.Errorf("backup to %s: %w", dir, err), s.fs.RemoveAll(partial))
		}
	}()
	if err := s.db.Checkpoint(partial, pebbledb.WithFlushedWAL()); err != nil {
		return err
	}
	if err := writeCommitCount(s.fs, partial, kept); err != nil {
		return err
	}
	cfg := s.cfg
	cfg.Dir = partial
	if err := look(cfg, s.fs); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if info, err := s.lstat(dir); err == nil && info.IsDir() { // checkBackupDir found it empty
		if err := s.fs.Remove(dir); err != nil {
			return err
		}
	}
	if err := s.fs.Rename(partial, dir); err != nil {
		return err
	}
	return syncDir(s.fs, s.fs.PathDir(dir))
}
