package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/files"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/backup"
)

// chooseBucket finds the opener of a place for backups.
func chooseBucket(place string, others []backend.Buckets) (u *url.URL, open func(ctx context.Context, create bool) (backend.Bucket, error), err error) {
	if u, err = backend.ParseBucket(place); err != nil {
		return nil, nil, fmt.Errorf("%q is no place for backups: %w", place, err)
	}
	all := append([]backend.Buckets{files.Buckets()}, others...)
	i := slices.IndexFunc(all, func(b backend.Buckets) bool { return b.Scheme == u.Scheme })
	if i < 0 {
		usages := make([]string, len(all))
		for i, b := range all {
			usages[i] = b.Usage
		}
		return nil, nil, fmt.Errorf("unknown scheme in %q (valid here: %s; countmill-backup has gs:// and s3:// too)", place, strings.Join(usages, ", "))
	}
	return u, func(ctx context.Context, create bool) (backend.Bucket, error) { return all[i].Open(ctx, u, create) }, nil
}

// checkBackups refuses settings of backups that nothing would come of.
func checkBackups(c Config) error {
	if c.BackupRoot == "" {
		if c.BackupEvery > 0 || c.BackupKeep > 0 {
			return Usagef("--backup-every and --backup-keep: regular backups go to --backup-root, which is not given")
		}
		return nil
	}
	_, _, err := chooseBucket(c.BackupRoot, c.Buckets)
	switch alone, _ := c.oneProcess(); {
	case err != nil:
		return usage("backup-root", err)
	case !alone:
		return Usagef("--backup-root: is for copies of a pebble: store, and --store is %s: leave it out", backend.Shown(c.Store))
	case c.BackupKeep > 0 && c.BackupEvery == 0:
		return Usagef("--backup-keep: bounds regular backups: give --backup-every too")
	case c.BackupKeep > 0 && c.BackupKeep < c.BackupEvery:
		return Usagef("--backup-keep: must be at least --backup-every, or each backup would remove the one before")
	}
	return nil
}

// backupRate is the most bytes that backups read in a second. It is a guess.
const backupRate = 64 << 20

// newKeeper is nil without a place for backups.
func newKeeper(cfg Config, disk backend.Disk) (*backup.Keeper, error) {
	if cfg.BackupRoot == "" {
		return nil, nil
	}
	root, open, err := chooseBucket(cfg.BackupRoot, cfg.Buckets)
	if err != nil {
		panic(err) // Check refuses it
	}
	k, err := backup.New(disk, backup.Config{
		Root: root, Open: open, Every: cfg.BackupEvery, Keep: cfg.BackupKeep, Rate: backupRate, Logger: cfg.Logger.With("backups", root.Redacted()),
	})
	if err != nil {
		return nil, usage("backup-root", err)
	}
	return k, nil
}

// takeBackup copies the store to a place below the root.
func (d *onDisk) takeBackup(ctx context.Context, to string) (client.Backup, error) {
	if d.backups == nil {
		return client.Backup{}, api.ErrNoBackupRoot
	}
	b, err := d.backups.Backup(ctx, to)
	switch {
	case errors.Is(err, backup.ErrTarget):
		return client.Backup{}, api.BackupTargetError(err.Error())
	case errors.Is(err, backup.ErrBusy):
		return client.Backup{}, api.BackupBusyError(err)
	case errors.Is(err, backup.ErrOther), errors.Is(err, backup.ErrGone):
		return client.Backup{}, api.BackupFailedError(err.Error())
	case errors.Is(err, countmill.ErrUnavailable), err != nil && ctx.Err() != nil:
		return client.Backup{}, err
	case err != nil:
		d.log.LogAttrs(ctx, slog.LevelError, "no backup", slog.Any("err", err))
		return client.Backup{}, api.BackupFailedError(reason(err))
	}
	return client.Backup{URL: b.URL, ID: b.ID, BeganAt: b.BeganAt, TakenAt: b.TakenAt, Bytes: b.Bytes, SentBytes: b.Sent}, nil
}

// reason is the system's reason for a failed backup. It leaves out the names of files, which
// may be in other directories.
func reason(err error) string {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number.Error() + " (the server's log says more)"
	}
	return "the server's log says why"
}

func backupSamples(k *backup.Keeper) []sample {
	if k == nil {
		return nil
	}
	s := k.Stats()
	return []sample{
		counter("countmill_backups_total", "Backups taken.", s.Taken),
		counter("countmill_backup_failures_total", "Attempts to take or list backups that failed.", s.Failures),
		counter("countmill_backup_sent_bytes_total", "Bytes of new files in backups.", s.Sent),
		gauge("countmill_backup_last_timestamp_seconds", "Everything accepted before is in the newest backup of the root that is known; 0 if none is.", unixSeconds(s.Last)),
		gauge("countmill_backup_every_seconds", "Time between regular backups; 0 if there are none.", s.Every.Seconds()),
	}
}

// Restore writes a backup below a place to the directory dir. Package backup has the promises.
func Restore(ctx context.Context, buckets []backend.Buckets, place string, c backup.Choice, dir string) (backup.Restored, error) {
	b, err := openBucket(ctx, buckets, place)
	if err != nil {
		return backup.Restored{}, err
	}
	defer func() { _ = b.Close() }() // it was only read
	r, err := backup.Restore(ctx, b, c, dir)
	if err != nil {
		err = fmt.Errorf("%s: %w", place, err)
	}
	return r, err
}

// Backups lists the backups below a place, the oldest first.
func Backups(ctx context.Context, buckets []backend.Buckets, place string) ([]backup.Listed, error) {
	b, err := openBucket(ctx, buckets, place)
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close() }() // it was only read
	return backup.List(ctx, b)
}

func openBucket(ctx context.Context, buckets []backend.Buckets, place string) (backend.Bucket, error) {
	_, open, err := chooseBucket(place, buckets)
	if err != nil {
		return nil, Usagef("%s", err)
	}
	return open(ctx, false)
}
