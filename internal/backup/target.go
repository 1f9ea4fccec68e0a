package backup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"time"

	"github.com/countmill/countmill/backend"
)

// A target is a place for backups in a bucket.
type target struct {
	bucket backend.Bucket
	path   string // below the bucket; empty for the bucket itself
}

// A Listed is a backup in a list.
type Listed struct {
	ID       string
	Database string // the id of the store
	Target   string // the path of its target below the bucket
	TakenAt  time.Time

	written time.Time // by the bucket's clock
}

// List returns the backups of a bucket, those of every target, the oldest first.
func List(ctx context.Context, b backend.Bucket) ([]Listed, error) { return listBelow(ctx, b, "") }

// list returns the target's own backups, the oldest first.
func (t target) list(ctx context.Context) ([]Listed, error) {
	return listBelow(ctx, t.bucket, t.name(manifests)+"/")
}

func listBelow(ctx context.Context, b backend.Bucket, prefix string) (found []Listed, err error) {
	all, err := objects(ctx, b, prefix)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		if b, ok := parseName(o.Name); ok {
			b.written = o.ModTime
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b Listed) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Target, b.Target)) })
	return found, nil
}

// objects lists those whose names begin with prefix.
func objects(ctx context.Context, b backend.Bucket, prefix string) (found []backend.Object, err error) {
	ctx, cancel := callTimeout(ctx, 0)
	defer cancel()
	for o, err := range b.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		found = append(found, o)
	}
	return found, nil
}

// name is the name of an object of the target.
func (t target) name(parts ...string) string {
	return path.Join(append([]string{t.path}, parts...)...)
}

// stored returns the sizes of the target's files by their checksums.
func (t target) stored(ctx context.Context) (map[string]int64, error) {
	all, err := objects(ctx, t.bucket, t.name(content)+"/")
	if err != nil {
		return nil, err
	}
	found := make(map[string]int64)
	for _, o := range all {
		found[path.Base(o.Name)] = o.Size
	}
	return found, nil
}

// read returns a manifest.
func (t target) read(ctx context.Context, id string) (manifest, error) {
	ctx, cancel := callTimeout(ctx, maxManifest)
	defer cancel()
	r, err := t.bucket.Get(ctx, t.name(manifests, id))
	if err != nil {
		return manifest{}, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err := errors.Join(err, r.Close()); err != nil {
		return manifest{}, err
	}
	if len(text) > maxManifest {
		return manifest{}, damagef("the manifest of backup %s has more than %d bytes", id, maxManifest)
	}
	return decode(id, text)
}

// put writes a small object.
func (t target) put(ctx context.Context, name string, text []byte) error {
	ctx, cancel := callTimeout(ctx, int64(len(text)))
	defer cancel()
	return t.bucket.Put(ctx, name, bytes.NewReader(text))
}

func (t target) remove(ctx context.Context, name string) error {
	ctx, cancel := callTimeout(ctx, 0)
	defer cancel()
	return t.bucket.Delete(ctx, name)
}

// slowest is the bytes a second below which a call is given up. A guess.
const slowest = 100_000

// callTimeout bounds a call that moves so many bytes.
func callTimeout(ctx context.Context, bytes int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Minute+time.Duration(bytes/slowest)*time.Second)
}
