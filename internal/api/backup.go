package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
)

// backupTimeout bounds a backup. A later call continues where this one ended.
const backupTimeout = 10 * time.Minute

// A backupRequest names the target.
type backupRequest struct {
	// A path relative to the server's `--backup-root`, or a URL or directory that is the root or below it. Absent: the root.
	To text `json:"to,omitzero" schema:"len 1.. like before-upgrade like gs://bucket/counters/before-upgrade"`
}

// The errors of Services.Backup that have an answer of their own.
var (
	// ErrNoBackupRoot: the process may write no backups.
	ErrNoBackupRoot = httpserver.NewProblem(http.StatusNotImplemented, "not-supported", "not supported",
		"this process makes no backups: start it with --backup-root PLACE or COUNTMILL_BACKUP_ROOT, below which they are made")

	errNoBackups = httpserver.NewProblem(http.StatusNotImplemented, "not-supported", "not supported",
		"backup copies a pebble: store; this process has another, which its own tools back up")
)

// BackupTargetError refuses the target that a request names.
func BackupTargetError(problem string) error { return backupBody.wrong("to", problem) }

// BackupBusyError refuses a backup while another one is made.
func BackupBusyError(err error) error {
	return httpserver.NewProblem(http.StatusConflict, "busy", "busy", err.Error())
}

// BackupFailedError is a backup that could not be written, with a reason for the client.
func BackupFailedError(reason string) error {
	return httpserver.NewProblem(http.StatusInternalServerError, "backup-failed", "no backup", "it could not be written: "+reason)
}

// backup answers when the copy is whole.
func (a *API) backup(c call) (any, error) {
	request := c.body.(*backupRequest)
	if request.To.given && request.To.value == "" {
		return nil, backupBody.wrong("to", "is empty: leave it out for the backup root itself")
	}
	if a.services.Backup == nil {
		return nil, errNoBackups
	}
	b, err := a.services.Backup(c.ctx, request.To.value)
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, countmill.ErrUnavailable) {
		late := httpserver.NewProblem(http.StatusServiceUnavailable, "timeout", "timeout", fmt.Sprintf("the backup did not end within %s: repeat it, and it continues", backupTimeout))
		err = late.RetryAfter(time.Minute)
	}
	return b, err
}
