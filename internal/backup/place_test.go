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

// A backup in the data directory would keep the store from opening.
func TestDataDirectoryIsNoTarget(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	data := filepath.Join(root, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, filepath.Join(root, "link")); err != nil {
		t.Skip(err)
	}
	u := backend.FileURL(root)
	for at, refused := range map[string]bool{"": false, "dat": false, "data2": false, "data": true, "data/x/y": true, "link": true, "link/x": true} {
		if err := checkData(u, at, data); refused != errors.Is(err, ErrTarget) {
			t.Errorf("%q: got %v, want refused: %t", at, err, refused)
		}
	}
	if err := checkData(backend.FileURL(filepath.Join(data, "backups")), "", data); err == nil {
		t.Error("a root in the data directory: got no error")
	}
	if err := checkData(&url.URL{Scheme: "gs", Host: "b"}, "data", data); err != nil {
		t.Errorf("a bucket: got %v", err)
	}
}
