package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/backend"
)

// A Restored is a backup that was written to a directory.
type Restored struct {
	Listed
	Database string // the id of the store
	BeganAt  time.Time
	Bytes    int64
}

// Restore writes the newest backup of a bucket to dir, or the newest that was taken at the time at or
// before. dir must be absent or empty. It gets its name in the last step, when every checksum was
// right: a kill leaves dir.partial-....
func Restore(ctx context.Context, b backend.Bucket, at time.Time, dir string) (r Restored, err error) {
	if err := checkEmpty(dir); err != nil {
		return r, err
	}
	if r.Listed, err = newest(ctx, b, at); err != nil {
		return r, err
	}
	t := target{b, r.Target}
	m, err := t.read(ctx, r.ID)
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, r.older())
	}
	r.Database, r.BeganAt, r.Bytes = m.Database, m.BeganAt, m.bytes()
	dir = filepath.Clean(dir)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return r, err
	}
	partial := dir + ".partial-" + strings.ToLower(rand.Text()[:8])
	if err = t.fetch(ctx, m, partial); err == nil {
		err = put(partial, dir)
	} else if ctx.Err() == nil {
		err = fmt.Errorf("backup %s: %w: %s", r.ID, err, r.older())
	}
	if err != nil {
		return r, errors.Join(err, os.RemoveAll(partial))
	}
	return r, nil
}

// older names the way to the backup before.
func (l Listed) older() string {
	return "try an older one with --at " + l.TakenAt.Add(-time.Microsecond).Format("2006-01-02T15:04:05.000000Z")
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

func newest(ctx context.Context, b backend.Bucket, at time.Time) (Listed, error) {
	found, err := List(ctx, b)
	if err != nil {
		return Listed{}, err
	}
	for i := len(found) - 1; i >= 0; i-- {
		if at.IsZero() || !found[i].TakenAt.After(at) {
			return found[i], nil
		}
	}
	if len(found) > 0 {
		return Listed{}, fmt.Errorf("no backup is that old: the oldest was taken at %s", found[0].TakenAt.Format(time.RFC3339Nano))
	}
	return Listed{}, errors.New("there is no backup")
}

// fetch writes the files of a backup to a new directory.
func (t target) fetch(ctx context.Context, m manifest, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, f := range m.Files {
		g.Go(func() error { return t.fetchFile(ctx, f, filepath.Join(dir, f.Name)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return syncDir(dir)
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
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // it was empty
		return err
	}
	if err := os.Rename(partial, dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" { // which cannot sync directories
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
