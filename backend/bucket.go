package backend

import (
	"context"
	"io"
	"iter"
	"net/url"
	"time"
)

// Buckets opens places for backups of one scheme, such as directories or buckets of a cloud.
type Buckets struct {
	// Scheme is the word before ://, Usage the form of the whole URL.
	Scheme, Usage string
	// Open opens the bucket with every name below the URL's path. With create it makes a missing
	// directory. It must end with ctx.
	Open func(ctx context.Context, u *url.URL, create bool) (Bucket, error)
}

// A Bucket keeps objects under names like a/b/c. All methods are safe for concurrent use, and end with
// their ctx. buckettest has the tests that each bucket passes.
//
// A bucket is consistent: what Put and Delete have changed when they return is in every later Get and
// List of any process.
type Bucket interface {
	// Put writes an object and replaces one of the same name. When it returns nil, the object is
	// durable. After an error, or a kill at any moment, the object has all bytes of from, or it is as it was
	// before. If from returns an error other than io.EOF, Put returns it and writes nothing.
	Put(ctx context.Context, name string, from io.Reader) error
	// Get opens an object; ctx bounds its reading, too. The error matches fs.ErrNotExist if there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List yields every object whose name begins with prefix, in any order. It may yield files that an
	// interrupted Put has left, under names that nobody gave.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete removes an object. It returns nil if there is none.
	Delete(ctx context.Context, name string) error
	// Close releases the bucket.
	Close() error
}

// An Object is an entry of a list.
type Object struct {
	Name string
	Size int64 // bytes
	// ModTime is when the object was written, by the bucket's clock.
	ModTime time.Time
}
