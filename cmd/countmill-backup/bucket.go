package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"
	"gocloud.dev/gcp"

	"github.com/countmill/countmill/backend"
)

// googleStorage opens gs://BUCKET/PATH with the default credentials of the machine.
func googleStorage() backend.Buckets {
	return backend.Buckets{Scheme: gcsblob.Scheme, Usage: "gs://BUCKET[/PATH]", Open: func(ctx context.Context, u *url.URL, _ bool) (backend.Bucket, error) {
		found, err := gcp.DefaultCredentials(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.Redacted(), err)
		}
		client, err := gcp.NewHTTPClient(gcp.DefaultTransport(), gcp.CredentialsTokenSource(found))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.Redacted(), err)
		}
		return open(ctx, u, &gcsblob.URLOpener{Client: client})
	}}
}

// s3 opens s3://BUCKET/PATH?region=REGION with the credentials of AWS's variables, files or machine.
func s3() backend.Buckets {
	return backend.Buckets{Scheme: s3blob.Scheme, Usage: "s3://BUCKET[/PATH]?region=REGION", Open: func(ctx context.Context, u *url.URL, _ bool) (backend.Bucket, error) {
		return open(ctx, u, new(s3blob.URLOpener))
	}}
}

// open opens a bucket with the names below the URL's path.
func open(ctx context.Context, u *url.URL, opener blob.BucketURLOpener) (backend.Bucket, error) {
	root := *u
	root.Path = ""
	b, err := opener.OpenBucketURL(ctx, &root)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	return below(b, u.Path), nil
}

// below is a bucket with the names below a path.
func below(b *blob.Bucket, path string) *bucket {
	if path = strings.Trim(path, "/"); path != "" {
		b = blob.PrefixedBucket(b, path+"/")
	}
	return &bucket{b}
}

// A bucket is one of a cloud.
type bucket struct{ *blob.Bucket }

// Put uploads in parts; an object appears when its upload is complete.
func (b *bucket) Put(ctx context.Context, name string, from io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.NewWriter(ctx, name, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return ended(ctx, err)
	}
	if _, err := io.Copy(w, from); err != nil {
		cancel() // before Close, which would complete the upload
		_ = w.Close()
		return err
	}
	return ended(ctx, w.Close())
}

// Get opens an object.
func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := b.NewReader(ctx, name, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// List asks for pages of 1,000 objects.
func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[backend.Object, error] {
	return func(yield func(backend.Object, error) bool) {
		for pages := b.Bucket.List(&blob.ListOptions{Prefix: prefix}); ; {
			o, err := pages.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(backend.Object{}, err)
				return
			}
			if !yield(backend.Object{Name: o.Key, Size: o.Size, ModTime: o.ModTime}, nil) {
				return
			}
		}
	}
}

// Delete removes an object.
func (b *bucket) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil { // not every driver looks at it
		return err
	}
	if err := b.Bucket.Delete(ctx, name); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return ended(ctx, err)
	}
	return nil
}

// ended returns the end of ctx as such: some drivers have errors of their own for it.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return err
}
