package pebble

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// ErrBackupDir: the directory cannot take a backup. Nothing was written there.
var ErrBackupDir = errors.New("cannot take a backup")

// ErrBackupBusy: another backup is under way.
var ErrBackupBusy = errors.New("another backup is under way")

// Backup copies the database to a directory that does not exist or is empty, while folds go
// on: every fold that returned before the call is in the copy, and of those beside it some
// may be, each whole or not at all. The copy is another directory's until it is whole and
// was looked at, so a backup that was cut off is never taken for one. It is the same
// database at an earlier moment, under the same id, and can be opened as it is.
//
// On the same file system Pebble makes links instead of copies. When ctx ends Backup returns
// at once; what it made goes when Pebble is done, and until then there can be no other.
func (s *Store) Backup(ctx context.Context, dir string) error {
	if err := s.enter(); err != nil {
		return err
	}
	if err := errors.Join(ctx.Err(), s.checkBackupDir(dir)); err != nil {
		s.closing.RUnlock()
		return err
	}
	select {
	case s.backing <- struct{}{}:
	default:
		s.closing.RUnlock()
		return ErrBackupBusy
	}
	done := make(chan error, 1)
	go func() { // Close waits for it
		defer s.closing.RUnlock()
		err := s.backup(ctx, dir)
		<-s.backing // before the answer: whoever has it may ask for the next
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("backup to %s: %w", dir, ctx.Err())
	}
}

func (s *Store) checkBackupDir(dir string) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s %w: %s", dir, ErrBackupDir, fmt.Sprintf(format, args...))
	}
	if !filepath.IsAbs(dir) {
		return refuse("name it from the root of the server's machine")
	}
	above := s.fs.PathDir(dir)
	if _, err := s.fs.Stat(above); err != nil {
		return refuse("%s is not there: make it, or mount it", above)
	}
	if inside(s.resolve(above), s.resolve(s.cfg.Dir)) {
		return refuse("it lies in the data directory %s", s.cfg.Dir)
	}
	names, err := s.fs.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return refuse("%s", err)
	case len(names) > 0:
		return refuse("it holds %q: name a new one, or an empty one", names[0])
	}
	return nil
}

// resolve follows links on the machine's own file system.
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

// backup makes the copy beside dir and gives it its name in the last step.
func (s *Store) backup(ctx context.Context, dir string) (err error) {
	sealed := seal{s.id, s.commits.synced.Load(), s.moments.newest()}
	partial := filepath.Clean(dir) + ".partial-" + strings.ToLower(rand.Text()[:8])
	defer func() {
		if r := recover(); r != nil { // Pebble panics where a directory cannot be synced
			err = fmt.Errorf("%v", r)
		}
		if err != nil {
			err = errors.Join(fmt.Errorf("backup to %s: %w", dir, err), s.fs.RemoveAll(partial))
		}
	}()
	if err := s.db.Checkpoint(partial, pebbledb.WithFlushedWAL()); err != nil {
		return err
	}
	if err := writeSeal(s.fs, partial, sealed); err != nil {
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
	if err := s.fs.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // it was empty
		return err
	}
	if err := s.fs.Rename(partial, dir); err != nil {
		return err
	}
	return syncDir(s.fs, s.fs.PathDir(dir))
}
