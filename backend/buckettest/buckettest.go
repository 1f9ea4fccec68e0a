// Package buckettest tests buckets of backups: what [backend.Bucket] promises.
package buckettest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/backend"
)

// Run tests the buckets that open returns, each of them empty. open closes them at the end of its test.
func Run(t *testing.T, open func(t *testing.T) backend.Bucket) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, backend.Bucket){
		"PutAndGet": putAndGet, "Missing": missing, "List": list, "Delete": remove, "FailingReader": failingReader, "Context": ended,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// Put writes an object whole, replaces one, and makes no difference for others.
func putAndGet(t *testing.T, b backend.Bucket) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 700_000) // more than one part of an upload
	for _, o := range []struct {
		name string
		data []byte
	}{{"a/b/c", []byte("one")}, {"a/b/d", nil}, {"a/b/c", []byte("two")}, {"large", large}, {"a/b.json", []byte("{}")}} {
		Put(t, b, o.name, o.data)
		if got := Get(t, b, o.name); !bytes.Equal(got, o.data) {
			t.Errorf("%s: got %d bytes %.20q, want %d", o.name, len(got), got, len(o.data))
		}
	}
	if got := Get(t, b, "a/b/c"); string(got) != "two" {
		t.Errorf("got %q, want two", got)
	}
}

func missing(t *testing.T, b backend.Bucket) {
	r, err := b.Get(t.Context(), "a/b")
	if err == nil { // a bucket may find out when it reads
		_, err = io.ReadAll(r)
		_ = r.Close() // the error of the read decides
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	if err := b.Delete(t.Context(), "a/b"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if found := List(t, b, "a/"); len(found) > 0 {
		t.Errorf("an empty bucket has %v", found)
	}
}

// List has the objects with the prefix, with their sizes and times.
func list(t *testing.T, b backend.Bucket) {
	for i, name := range []string{"x/backups/1", "x/backups/2", "x/files/1", "x/y/backups/3", "z"} {
		Put(t, b, name, bytes.Repeat([]byte("x"), i))
	}
	for prefix, want := range map[string][]string{
		"":           {"x/backups/1", "x/backups/2", "x/files/1", "x/y/backups/3", "z"},
		"x/backups/": {"x/backups/1", "x/backups/2"},
		"x/y/":       {"x/y/backups/3"},
		"no/":        nil,
	} {
		if got := slices.Sorted(maps.Keys(List(t, b, prefix))); !slices.Equal(got, want) {
			t.Errorf("prefix %q: got %q, want %q", prefix, got, want)
		}
	}
	o := List(t, b, "x/y/")["x/y/backups/3"]
	if age := time.Since(o.ModTime); o.Size != 3 || age > time.Hour || age < -time.Hour {
		t.Errorf("got %d bytes of %s, want 3 of now", o.Size, o.ModTime)
	}
	for range b.List(t.Context(), "") {
		break // a caller may have enough
	}
}

func remove(t *testing.T, b backend.Bucket) {
	Put(t, b, "a/1", []byte("x"))
	Put(t, b, "a/2", []byte("y"))
	if err := b.Delete(t.Context(), "a/1"); err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(maps.Keys(List(t, b, ""))); !slices.Equal(got, []string{"a/2"}) {
		t.Errorf("got %q, want a/2", got)
	}
}

var errDrawn = errors.New("drawn")

// An object whose reader fails is as it was before.
func failingReader(t *testing.T, b backend.Bucket) {
	Put(t, b, "a/old", []byte("old"))
	for _, size := range []int{0, 10, 11 << 20} {
		for _, name := range []string{"a/old", "a/new"} {
			from := io.MultiReader(strings.NewReader(strings.Repeat("x", size)), broken{})
			if err := b.Put(t.Context(), name, from); !errors.Is(err, errDrawn) {
				t.Errorf("%s, %d bytes: got %v, want the error of the reader", name, size, err)
			}
		}
	}
	if got := slices.Collect(maps.Keys(List(t, b, ""))); !slices.Equal(got, []string{"a/old"}) || string(Get(t, b, "a/old")) != "old" {
		t.Errorf("got %q, want a/old as it was", got)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errDrawn }

// Calls end with their context, and an object is whole or not there.
func ended(t *testing.T, b backend.Bucket) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Put(ctx, "a", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("put: got %v", err)
	}
	if err := b.Delete(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("delete: got %v", err)
	}
	if found := List(t, b, ""); len(found) > 0 {
		t.Errorf("got %v, want nothing", found)
	}
}

// Put writes an object.
func Put(t *testing.T, b backend.Bucket, name string, data []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name, bytes.NewReader(data)); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

// Get reads an object.
func Get(t *testing.T, b backend.Bucket, name string) []byte {
	t.Helper()
	r, err := b.Get(t.Context(), name)
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	return data
}

// List returns the objects by their names.
func List(t *testing.T, b backend.Bucket, prefix string) map[string]backend.Object {
	t.Helper()
	found := make(map[string]backend.Object)
	for o, err := range b.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		found[o.Name] = o
	}
	return found
}
