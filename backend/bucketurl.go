package backend

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// FileScheme is the scheme of directories as places for backups.
const FileScheme = "file"

// ParseBucket parses a place for backups: SCHEME://..., or a directory of this machine.
func ParseBucket(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("it is empty: name a directory, or a URL")
	}
	if !strings.Contains(text, "://") {
		dir, err := filepath.Abs(text)
		if err != nil {
			return nil, err
		}
		return FileURL(dir), nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL")
	case u.User != nil || u.Fragment != "":
		return nil, fmt.Errorf("%s has a user or a fragment, which no place for backups has", u.Redacted())
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	if u.Scheme == FileScheme {
		if _, err := FileDir(u); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// FileURL is the URL of an absolute directory.
func FileURL(dir string) *url.URL {
	slashed := filepath.ToSlash(dir)
	if !strings.HasPrefix(slashed, "/") { // C:/dir
		slashed = "/" + slashed
	}
	return &url.URL{Scheme: FileScheme, Path: slashed}
}

// FileDir is the directory of a URL with FileScheme.
func FileDir(u *url.URL) (string, error) {
	if u.Host != "" || u.Opaque != "" || u.Path == "" || u.RawQuery != "" {
		return "", fmt.Errorf("%s is not of the form file:///ABSOLUTE/DIR", u.Redacted())
	}
	dir := filepath.FromSlash(u.Path)
	if without := strings.TrimPrefix(dir, `\`); filepath.VolumeName(without) != "" {
		dir = without
	}
	return dir, nil
}
