package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/countmill/countmill/backend"
)

// ErrOther means that the place has backups of another database. Nothing but a mark was written.
var ErrOther = errors.New("has backups of another database")

// ErrGone means that the root had a backup and has none now. It may be the directory below a mount that is lost, on the disk of
// the data. Nothing but a mark was written.
var ErrGone = errors.New("has no backup any more")

// checkOwn refuses a target if it, or the root, has backups of another database, and a root that has lost its own. Otherwise the one would remove the
// other's old backups, and a restore could take the wrong database. An empty database that was started by mistake
// leaves the backups of the lost one alone.
func (k *Keeper) checkOwn(ctx context.Context, bucket backend.Bucket, at string) error {
	for _, place := range slices.Compact([]string{"", at}) {
		found, err := target{bucket, place}.list(ctx)
		if err != nil {
			return err
		}
		if place == "" && len(found) == 0 && !k.Stats().Last.IsZero() {
			return fmt.Errorf("%s %w: mount its disk, or restart countmill if the backups may be gone", k.cfg.Root.Redacted(), ErrGone)
		}
		other := slices.IndexFunc(found, func(b Listed) bool { return b.Database != k.store.ID() })
		if other >= 0 {
			return fmt.Errorf("%s %w: %s, and this is %s: name another --backup-root, or restore that database",
				k.cfg.Root.JoinPath(place).Redacted(), ErrOther, found[other].Database, k.store.ID())
		}
	}
	return nil
}
