// Package files keeps backups in a directory of this machine, or of a file system that is mounted
// there.
//
// Nothing outside the directory is read or written, whatever symbolic links are in it. Directories get
// the mode 0700 and files 0600.
package files

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/durable"
)

const (
	privateFile = 0o600
	privateDir  = 0o700
)

// Buckets opens file:///DIR.
func Buckets() backend.Buckets {
	return backend.Buckets{Scheme: backend.FileScheme, Usage: "DIR or file:///DIR", Open: func(_ context.Context, u *url.URL, create bool) (backend.Bucket, error) {
		dir, err := backend.FileDir(u)
		if err != nil {
			return nil, err
		}
		return Open(dir, create)
	}}
}

// A Bucket is an open directory. All methods are safe for concurrent use.
type Bucket struct {
	root *os.Root

	mu     sync.Mutex
	synced map[string]bool // directories below root whose names are durable
}

var _ backend.Bucket = (*Bucket)(nil)

// Open opens a directory. With create it makes the directory and its parents if they are missing.
func Open(dir string, create bool) (*Bucket, error) {
	if create {
		if err := os.MkdirAll(dir, privateDir); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Bucket{root: root, synced: map[string]bool{".": true}}, nil
}

// Close releases the directory.
func (b *Bucket) Close() error { return b.root.Close() }

// Put writes a file beside its place, syncs it, and renames it.
func (b *Bucket) Put(ctx context.Context, name string, from io.Reader) (err error) {
	dir := path.Dir(name)
	if err := b.makeDir(dir); err != nil {
		return err
	}
	partial := name + ".partial-" + strings.ToLower(rand.Text()[:8])
	f, err := b.root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateFile)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, reader{ctx, from})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = b.root.Rename(partial, name)
	}
	if err != nil {
		return errors.Join(err, b.root.Remove(partial))
	}
	return durable.SyncDir(b.root.Open, dir)
}

// Get opens a file.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	f, err := b.root.Open(name)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{reader{ctx, f}, f}, nil
}

// lostFound is a directory that a mounted file system has at its top, and only root can read.
const lostFound = "lost+found"

// List walks the directories below the last slash of prefix.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[backend.Object, error] {
	return func(yield func(backend.Object, error) bool) {
		stop := errors.New("the caller has enough")
		err := fs.WalkDir(b.root.FS(), path.Dir(prefix+"x"), func(name string, d fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			var info fs.FileInfo
			if err == nil && d.Type().IsRegular() && strings.HasPrefix(name, prefix) {
				info, err = d.Info()
			}
			// Removed meanwhile, or the directory was never made.
			if errors.Is(err, fs.ErrNotExist) || name == lostFound && errors.Is(err, fs.ErrPermission) {
				return nil
			}
			if err == nil && info != nil && !yield(backend.Object{Name: name, Size: info.Size(), ModTime: info.ModTime()}, nil) {
				return stop
			}
			return err
		})
		if err != nil && !errors.Is(err, stop) {
			yield(backend.Object{}, err)
		}
	}
}

// Delete removes a file.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// makeDir makes a directory and syncs its name: a synced file is lost if the name of its directory is
// not on disk.
func (b *Bucket) makeDir(dir string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var missing []string
	for at := dir; !b.synced[at]; at = path.Dir(at) {
		missing = append(missing, at)
	}
	if len(missing) == 0 {
		return nil
	}
	if err := b.root.MkdirAll(dir, privateDir); err != nil {
		return err
	}
	for _, made := range missing {
		if err := durable.SyncDir(b.root.Open, path.Dir(made)); err != nil {
			return err
		}
	}
	for _, made := range missing {
		b.synced[made] = true
	}
	return nil
}

// A reader ends with its ctx, between two reads.
type reader struct {
	ctx  context.Context
	from io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}
