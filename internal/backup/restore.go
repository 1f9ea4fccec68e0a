package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/durable"
)

// A Restored is a backup that was written to a directory.
type Restored struct {
	Listed
	BeganAt time.Time
	Bytes   int64
}

// A Choice is the newest backup of a database that was taken at the time At or before.
type Choice struct {
	// Database is the id of the store. Empty: the bucket must have backups of one database only.
	Database string
	// At is zero for the newest of all.
	At time.Time
}

// Restore writes a backup of a bucket to dir, which must be absent or empty. It gets its name in the last step, when
// every checksum was right: a kill leaves dir.countmill-restore-NUMBER. Of several restores to dir at once the first one wins.
func Restore(ctx context.Context, b backend.Bucket, c Choice, dir string) (r Restored, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return r, err
	}
	if err := checkEmpty(dir); err != nil {
		return r, err
	}
	found, err := List(ctx, b)
	if err != nil {
		return r, err
	}
	if r.Listed, err = c.from(found); err != nil {
		return r, err
	}
	t := target{b, r.Target}
	m, err := t.read(ctx, r.ID)
	if err != nil {
		return r, r.advise(err)
	}
	r.BeganAt, r.Bytes = m.BeganAt, m.bytes()
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return r, err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // it is empty, but can be a mount
		return r, fmt.Errorf("%w: name a new directory, which the restore makes", err)
	}
	partial, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".countmill-restore-")
	if err != nil {
		return r, err
	}
	if err = t.fetch(ctx, m, partial); err == nil {
		err = put(partial, dir)
	} else {
		err = r.advise(fmt.Errorf("backup %s: %w", r.ID, err))
	}
	if err != nil {
		return r, errors.Join(err, os.RemoveAll(partial))
	}
	return r, nil
}

// advise names the way to the backup before, if this one is damaged.
func (l Listed) advise(err error) error {
	if !damaged(err) {
		return err
	}
	return fmt.Errorf("%w: try an older one with --at %s", err, l.TakenAt.Add(-time.Microsecond).Format("2006-01-02T15:04:05.000000Z"))
}

func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty: name a new directory, or an empty one", dir)
	}
	return nil
}

// from chooses among backups, the oldest first.
func (c Choice) from(found []Listed) (Listed, error) {
	if len(found) == 0 {
		return Listed{}, errors.New("there is no backup")
	}
	mine := slices.DeleteFunc(slices.Clone(found), func(b Listed) bool { return b.Database != cmp.Or(c.Database, found[0].Database) })
	switch {
	case len(mine) == 0:
		return Listed{}, fmt.Errorf("there is no backup of database %s: --list shows the others", c.Database)
	case c.Database == "" && len(mine) < len(found):
		return Listed{}, errors.New("it has backups of several databases: choose one with --database; --list shows them")
	}
	for _, b := range slices.Backward(mine) {
		if c.At.IsZero() || !b.TakenAt.After(c.At) {
			return b, nil
		}
	}
	return Listed{}, fmt.Errorf("no backup is that old: the oldest was taken at %s", mine[0].TakenAt.Format(time.RFC3339Nano))
}

// fetch writes the files of a backup to an empty directory.
func (t target) fetch(ctx context.Context, m manifest, dir string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, f := range m.Files {
		g.Go(func() error { return t.fetchFile(ctx, f, filepath.Join(dir, f.Name)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return durable.SyncDir(os.Open, dir)
}

func (t target) fetchFile(ctx context.Context, f file, to string) error {
	ctx, cancel := callTimeout(ctx, f.Size)
	defer cancel()
	from, err := t.bucket.Get(ctx, t.name(content, f.SHA256))
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	_, err = io.Copy(out, newChecked(from, f))
	return errors.Join(err, out.Sync(), out.Close(), from.Close())
}

// put gives the directory its name.
func put(partial, dir string) error {
	if err := os.Rename(partial, dir); err != nil {
		return err
	}
	return durable.SyncDir(os.Open, filepath.Dir(dir))
}
