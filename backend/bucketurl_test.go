package backend

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseBucket(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a b%", "c?d")
	for _, text := range []string{dir, FileURL(dir).String(), FileURL(dir).String() + "/"} {
		u, err := ParseBucket(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := FileDir(u); err != nil || got != dir {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, dir)
		}
	}
	u, err := ParseBucket("s3://bucket/a/b/?region=eu-west-1")
	if want := (url.URL{Scheme: "s3", Host: "bucket", Path: "/a/b", RawQuery: "region=eu-west-1"}); err != nil || *u != want {
		t.Errorf("got %v, %v, want %v", u, err, &want)
	}
	for text, says := range map[string]string{
		"": "empty", "file://host/dir": "file:///ABSOLUTE/DIR", "file:///dir?x=1": "file:///ABSOLUTE/DIR", "file://": "file:///ABSOLUTE/DIR",
		"s3://me:secret@bucket": "has a user", "gs://bucket#x": "fragment", "gs://%zz": "not a URL",
	} {
		if u, err := ParseBucket(text); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v, %v, want an error with %q", text, u, err, says)
		}
	}
}
