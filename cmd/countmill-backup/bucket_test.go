package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gocloud.dev/blob/memblob"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/buckettest"
	"github.com/countmill/countmill/command"
)

// TestMemory tries the part that all clouds share, with gocloud's bucket in memory.
func TestMemory(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", "/counters/prod"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			buckettest.Run(t, func(t *testing.T) backend.Bucket {
				b := below(memblob.OpenBucket(nil), path)
				t.Cleanup(func() { _ = b.Close() })
				return b
			})
		})
	}
}

// TestS3 tries AWS's client and gocloud's driver with a server in this process, which has the five calls of
// S3 that they need.
func TestS3(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "someone")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Run("suite", func(t *testing.T) {
		buckettest.Run(t, func(t *testing.T) backend.Bucket {
			return openURL(t, s3(), s3URL(t, newFakeS3(), "/counters"))
		})
	})
	t.Run("backup and restore", func(t *testing.T) { backupAndRestore(t, s3URL(t, newFakeS3(), "/counters/prod")) })
	t.Run("no such bucket", func(t *testing.T) {
		b := openURL(t, s3(), s3URL(t, http.NotFoundHandler(), ""))
		if err := b.Put(t.Context(), "a", strings.NewReader("x")); err == nil {
			t.Error("a put to a missing bucket got no error")
		}
	})
}

func s3URL(t *testing.T, server http.Handler, path string) string {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	return "s3://bucket" + path + "?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(s.URL)
}

func openURL(t *testing.T, of backend.Buckets, text string) backend.Bucket {
	t.Helper()
	u, err := backend.ParseBucket(text)
	if err != nil {
		t.Fatal(err)
	}
	b, err := of.Open(t.Context(), u, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// A backup is whole after it was killed, and it starts where it was: the whole program with a bucket.
func backupAndRestore(t *testing.T, root string) {
	at := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	out := &lines{first: make(chan string, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, out, "up", "--listen", "127.0.0.1:0", "--data", filepath.Join(at, "data"), "--backup-root", root)
	}()
	var server string
	select {
	case line := <-out.first:
		_, server, _ = strings.Cut(line, "listens on ")
		server, _, _ = strings.Cut(server, " ")
	case code := <-ended:
		t.Fatalf("up ended with %d", code)
	}
	for _, args := range [][]string{
		{"incr", "orders", "41", "--server", server}, {"backup", "--server", server},
		{"incr", "orders", "1", "--server", server}, {"backup", "--server", server, "below/it"},
		{"restore", root, filepath.Join(at, "restored")},
	} {
		if code := run(t.Context(), os.Stderr, args...); code != 0 {
			t.Fatalf("%q: exit %d", args, code)
		}
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("up: exit %d", code)
	}
	seal, err := os.ReadFile(filepath.Join(at, "restored", "countmill.seal"))
	if err != nil || !strings.Contains(string(seal), " ") {
		t.Errorf("the restored directory: %q, %v", seal, err)
	}
}

func run(ctx context.Context, out interface{ Write([]byte) (int, error) }, args ...string) int {
	return command.Main(append(options(), command.Context(ctx), command.Args(args...), command.Environ(nil), command.Streams(nil, out, os.Stderr))...)
}

// lines sends its first line.
type lines struct {
	first chan string
	sent  bool
}

func (l *lines) Write(p []byte) (int, error) {
	if !l.sent {
		l.sent = true
		l.first <- strings.TrimSpace(string(p))
	}
	return len(p), nil
}

// A URL that the driver does not understand is an error, not a bucket elsewhere.
func TestURL(t *testing.T) {
	t.Parallel()
	u, err := backend.ParseBucket("s3://bucket?regoin=x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s3().Open(t.Context(), u, true); err == nil || !strings.Contains(err.Error(), "regoin") {
		t.Errorf("got %v, want an error that names the parameter", err)
	}
}
