package backup

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The directories of a target.
const (
	manifests = "backups"
	content   = "files"
	marks     = "busy"
)

// format is the version of manifests. A process refuses newer ones.
const format = 1

// maxManifest bounds a manifest in bytes. A file takes about 120 of them.
const maxManifest = 256 << 20

// A manifest lists the files of a backup.
type manifest struct {
	Format int `json:"format"`
	// Database is the id of the store.
	Database string `json:"database"`
	// BeganAt: everything that was accepted before is in the backup. TakenAt: nothing that was accepted
	// afterwards is.
	BeganAt time.Time `json:"began_at"`
	TakenAt time.Time `json:"taken_at"`
	Files   []file    `json:"files"`
}

// A file is one of a backup.
type file struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// bytes is the size of the backup.
func (m manifest) bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// stamp is how names of manifests have times: their order is that of the times.
const stamp = "20060102T150405.000000Z"

// idOf matches the name of a manifest.
var idOf = regexp.MustCompile(`^(\d{8}T\d{6}\.\d{6}Z)-([0-9a-f]{16})$`)

// encode returns the id of the backup and the text of the manifest.
func (m manifest) encode() (id string, text []byte, err error) {
	slices.SortFunc(m.Files, func(a, b file) int { return cmp.Compare(a.Name, b.Name) })
	if text, err = json.MarshalIndent(m, "", " "); err != nil {
		return "", nil, err
	}
	text = append(text, '\n')
	return m.TakenAt.UTC().Format(stamp) + "-" + digest(text), text, nil
}

// digest is the part of the checksum of a manifest that its name has.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// decode refuses a manifest that is not the one of this id, and names that lead out of a directory.
func decode(id string, text []byte) (m manifest, err error) {
	if match := idOf.FindStringSubmatch(id); match == nil || digest(text) != match[2] {
		return m, fmt.Errorf("the manifest of backup %s is damaged", id)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("the manifest of backup %s: %w", id, err)
	}
	if m.Format != format {
		return m, fmt.Errorf("backup %s has format %d, and this countmill knows %d: use the countmill that took it, or a newer one", id, m.Format, format)
	}
	for _, f := range m.Files {
		if f.Name != filepath.Base(f.Name) || !filepath.IsLocal(f.Name) || strings.ContainsAny(f.Name, `/\`) || !isSum(f.SHA256) || f.Size < 0 {
			return m, fmt.Errorf("the manifest of backup %s names a file %q with %d bytes and SHA-256 %q", id, f.Name, f.Size, f.SHA256)
		}
	}
	return m, nil
}

var sumOf = regexp.MustCompile(`^[0-9a-f]{64}$`)

func isSum(text string) bool { return sumOf.MatchString(text) }

// leftover matches the end that an interrupted Put leaves on a name in a directory.
var leftover = regexp.MustCompile(`\.partial-[a-z0-9]{8}$`)

// isOurs reports whether an object below backups/ or files/ can be of a backup. Whoever shares a bucket
// with backups may have other objects there.
func isOurs(name string) bool {
	base := leftover.ReplaceAllString(path.Base(name), "")
	return isSum(base) || idOf.MatchString(base)
}

// parseName returns the target and the id of a manifest by its name below the root.
func parseName(name string) (target, id string, takenAt time.Time, ok bool) {
	dir, id := path.Split(name)
	match := idOf.FindStringSubmatch(id)
	if match == nil || path.Base(dir) != manifests {
		return "", "", time.Time{}, false
	}
	if target = path.Dir(path.Clean(dir)); target == "." {
		target = ""
	}
	takenAt, err := time.Parse(stamp, match[1])
	return target, id, takenAt, err == nil
}
