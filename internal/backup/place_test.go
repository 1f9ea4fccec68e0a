package backup

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countmill/countmill/backend"
)

func TestBelow(t *testing.T) {
	t.Parallel()
	for root, cases := range map[string]map[string]string{
		"/backups": {
			"": "", ".": "", "monday": "monday", "a/b": "a/b", "a/": "a", "/backups": "", "/backups/a": "a", "file:///backups/a/": "a", "file:///backups": "",
			"..": "!", "../backups": "!", "a/../b": "!", "a//b": "!", "/": "!", "/backups2": "!", "/backups/../etc": "!", "/etc": "!", "file:///etc": "!", "file://host/backups": "!",
			"gs://backups/a": "!", "s3:///backups": "!", "file:///backups/%2e%2e/etc": "!", "file:///backups?x=1": "!", "a\x00b": "!", "a\nb": "!", "a\\..\\b": "!",
			"files": "!", "a/backups": "!", "busy/a": "!", strings.Repeat("x", maxPath+1): "!", "file:///backups/files": "!",
		},
		"gs://bucket/a?x=1": {
			"": "", "b": "b", "gs://bucket/a/b": "b", "gs://bucket/a/b?x=1": "b",
			"gs://bucket/a/b?x=2": "!", "gs://bucket": "!", "gs://bucket/ab": "!", "gs://other/a": "!", "s3://bucket/a": "!", "/a": "!",
		},
		"gs://bucket": {"": "", "gs://bucket/a": "a", "gs://bucket": "", "gs://bucket2": "!", "gs://me@bucket/a": "!"},
	} {
		u, err := backend.ParseBucket(root)
		if err != nil {
			t.Fatal(err)
		}
		for to, want := range cases {
			got, err := below(u, to)
			if refused := want == "!"; refused != (err != nil) || refused && !errors.Is(err, ErrTarget) || !refused && got != want {
				t.Errorf("%q below %s: got %q, %v, want %q", to, root, got, err, want)
			}
		}
	}
}

// A backup in the data directory would keep the store from opening. One above it would be removed with it.
func TestRootIsApartFromTheData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "a", "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": data, "up": dir} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	for root, refused := range map[string]bool{
		"": true, "a": true, "a/data": true, "a/data/x/y": true, "link": true, "link/x": true, "up/a": true,
		"a/dat": false, "a/data2": false, "a/backups": false, "b": false, "up/b": false,
	} {
		_, err := New(folder{data}, Config{Root: backend.FileURL(filepath.Join(dir, root))})
		if says := err != nil && strings.Contains(err.Error(), "name a directory apart from it"); says != refused {
			t.Errorf("%q: got %v, want refused: %t", root, err, refused)
		}
	}
	if _, err := New(folder{data}, Config{Root: &url.URL{Scheme: "gs", Host: "b"}}); err != nil {
		t.Errorf("a bucket: got %v", err)
	}
}
