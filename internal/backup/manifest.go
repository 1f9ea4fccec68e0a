package backup

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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

// idOf matches the name of a manifest: its time, its database and its digest.
var idOf = regexp.MustCompile(`^(\d{8}T\d{6}\.\d{6}Z)-([0-9A-Za-z_-]{1,64})-([0-9a-f]{16})$`)

// encode returns the id of the backup and the text of the manifest.
func (m manifest) encode() (id string, text []byte, err error) {
	slices.SortFunc(m.Files, func(a, b file) int { return cmp.Compare(a.Name, b.Name) })
	if text, err = json.MarshalIndent(m, "", " "); err != nil {
		return "", nil, err
	}
	text = append(text, '\n')
	id = m.TakenAt.UTC().Format(stamp) + "-" + m.Database + "-" + digest(text)
	if !idOf.MatchString(id) {
		return "", nil, fmt.Errorf("the id %q of the database cannot be in the name of a backup", m.Database)
	}
	return id, text, nil
}

// digest is the part of the checksum of a manifest that its name has.
func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// A damage is a part of a backup whose content has changed since it was written.
type damage string

func (d damage) Error() string { return string(d) }

func damagef(format string, args ...any) error { return damage(fmt.Sprintf(format, args...)) }

// damaged reports whether err says that a part of a backup is damaged or missing.
func damaged(err error) bool {
	_, found := errors.AsType[damage](err)
	return found || errors.Is(err, fs.ErrNotExist)
}

// decode refuses a manifest that is not the one of this id, and names that lead out of a directory.
func decode(id string, text []byte) (m manifest, err error) {
	match := idOf.FindStringSubmatch(id)
	if match == nil || digest(text) != match[3] {
		return m, damagef("the manifest of backup %s is damaged", id)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("the manifest of backup %s: %w", id, err)
	}
	if m.Format != format {
		return m, fmt.Errorf("backup %s has format %d, and this countmill knows %d: use the countmill that took it, or a newer one", id, m.Format, format)
	}
	if m.Database != match[2] {
		return m, damagef("the manifest of backup %s names database %s", id, m.Database)
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

// parseName reads the name of a manifest below the root.
func parseName(name string) (b Listed, ok bool) {
	dir, id := path.Split(name)
	match := idOf.FindStringSubmatch(id)
	if match == nil || path.Base(dir) != manifests {
		return b, false
	}
	b = Listed{ID: id, Database: match[2], Target: path.Dir(path.Clean(dir))}
	if b.Target == "." {
		b.Target = ""
	}
	at, err := time.Parse(stamp, match[1])
	b.TakenAt = at
	return b, err == nil
}
