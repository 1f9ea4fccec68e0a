package app

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/internal/httpapi"
)

// takeBackup copies the store, and returns the directory of the copy.
func (d *onDisk) takeBackup(ctx context.Context, to string) (dir string, err error) {
	begin := time.Now()
	dir, err = d.Backup(ctx, to)
	switch {
	case errors.Is(err, pebble.ErrNoBackupRoot):
		return "", httpapi.ErrNoBackupRoot
	case errors.Is(err, pebble.ErrBackupDir):
		return "", httpapi.BackupDirError(err.Error())
	case errors.Is(err, pebble.ErrBackupBusy):
		return "", httpapi.BackupBusyError(err)
	case errors.Is(err, countmill.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return dir, err
	case err != nil:
		d.log.LogAttrs(ctx, slog.LevelError, "no backup", slog.Any("err", err))
		return "", httpapi.BackupFailedError(reason(err))
	}
	d.log.LogAttrs(ctx, slog.LevelInfo, "backup taken", slog.String("dir", dir), slog.Duration("took", time.Since(begin)))
	return dir, nil
}

// reason is the system's reason for a failed backup. It leaves out the names of files, which
// may be in other directories.
func reason(err error) string {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number.Error() + " (the server's log says more)"
	}
	return "the server's log says why"
}
