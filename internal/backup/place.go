package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/countmill/countmill/backend"
)

// ErrTarget means that backups may not be written to the target. Nothing was written.
var ErrTarget = errors.New("cannot take a backup")

// maxPath bounds the path of a target in bytes.
const maxPath = 500

// below returns the path of a target below root. It is empty for root itself. to is a path relative to
// root, or a URL or a directory that is root or below it.
func below(root *url.URL, to string) (string, error) {
	refuse := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%q %w: %s", to, ErrTarget, fmt.Sprintf(format, args...))
	}
	rel := filepath.ToSlash(to)
	if strings.Contains(to, "://") || filepath.IsAbs(to) {
		u, err := backend.ParseBucket(to)
		if err != nil {
			return refuse("%s", err)
		}
		rest, ok := strings.CutPrefix(u.Path, strings.TrimSuffix(root.Path, "/"))
		same := u.Scheme == root.Scheme && u.Host == root.Host && (u.RawQuery == "" || u.RawQuery == root.RawQuery)
		if !ok || !same || rest != "" && rest[0] != '/' {
			return refuse("it is not below %s", root.Redacted())
		}
		rel = strings.TrimPrefix(rest, "/")
	}
	if rel = strings.TrimSuffix(rel, "/"); rel == "" || rel == "." {
		return "", nil
	}
	switch parts := strings.Split(rel, "/"); {
	case !fs.ValidPath(rel) || strings.Contains(rel, `\`):
		return refuse("it is not below %s", root.Redacted())
	case len(rel) > maxPath || strings.ContainsFunc(rel, unicode.IsControl):
		return refuse("name a path of at most %d bytes without control characters", maxPath)
	case slices.ContainsFunc(parts, func(part string) bool { return part == manifests || part == content || part == marks }):
		return refuse("%s, %s and %s are names of directories in a backup: choose another one", manifests, content, marks)
	}
	return rel, nil
}

// checkRoot refuses a root in the directory of the store, which has no other files, and above it: who removes or
// moves one of the two would remove or move both.
func checkRoot(root *url.URL, data string) error {
	if root.Scheme != backend.FileScheme {
		return nil
	}
	dir, err := backend.FileDir(root)
	if err != nil {
		return err
	}
	if dir, data = resolve(dir), resolve(data); within(dir, data) || within(data, dir) {
		return fmt.Errorf("backups in %s would be in or above the data directory %s: name a directory apart from it, best on another disk", dir, data)
	}
	return nil
}

// within reports whether dir is parent or below it.
func within(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, strings.TrimSuffix(parent, string(filepath.Separator))+string(filepath.Separator))
}

// resolve follows the symbolic links of a path whose end may be missing.
func resolve(dir string) string {
	if full, err := filepath.Abs(dir); err == nil {
		dir = full
	}
	rest := ""
	for at := dir; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return dir
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}
