package backup

import (
	"context"
	"fmt"
	"path"
	"time"
)

// removeOld removes backups that are older than keep, and never the newest. The caller has the mark; now is
// the time of the bucket's clock.
func (t target) removeOld(ctx context.Context, keep time.Duration, now time.Time) (removed int, err error) {
	found, err := t.list(ctx)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	for _, b := range found[:len(found)-1] {
		if now.Sub(b.written) <= keep {
			continue
		}
		if err := t.remove(ctx, t.name(manifests, b.ID)); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// sweep removes every object below backups/ and files/ that belongs to no backup: files of backups that
// were removed or never finished. It reads all manifests, and removes nothing if one of them cannot be
// read. The caller has the mark.
func (t target) sweep(ctx context.Context) (removed int, err error) {
	found, err := t.list(ctx)
	if err != nil {
		return 0, err
	}
	needed := make(map[string]bool)
	for _, b := range found {
		m, err := t.read(ctx, b.ID)
		if err != nil {
			return 0, fmt.Errorf("no files are removed: %w", err)
		}
		needed[b.ID] = true
		for _, f := range m.Files {
			needed[f.SHA256] = true
		}
	}
	for _, dir := range []string{manifests, content} {
		all, err := objects(ctx, t.bucket, t.name(dir)+"/")
		if err != nil {
			return removed, err
		}
		for _, o := range all {
			if needed[path.Base(o.Name)] || !isOurs(o.Name) {
				continue
			}
			if err := t.remove(ctx, o.Name); err != nil {
				return removed, err
			}
			removed++
		}
	}
	return removed, nil
}
