package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
)

// backupTimeout bounds a backup: a disk that copies 100 MB a second takes 60 GB in it.
const backupTimeout = 10 * time.Minute

// A backupRequest names the directory of the copy.
type backupRequest struct {
	Dir text `json:"dir"`
}

// backupTaken is the answer: an absolute path.
type backupTaken struct {
	Dir string `json:"dir"`
}

// The errors of Services.Backup that have an answer of their own.
var (
	// ErrNoBackupRoot: the process may write no backups.
	ErrNoBackupRoot = api.NewProblem(http.StatusNotImplemented, "not-supported", "not supported",
		"this process makes no backups: start it with --backup-root DIR or COUNTMILL_BACKUP_ROOT, below which they are made")

	errNoBackups = api.NewProblem(http.StatusNotImplemented, "not-supported", "not supported",
		"backup copies a pebble: store; this process has another, which its own tools back up")
)

// BackupDirError refuses the directory that a request names.
func BackupDirError(problem string) error { return backupBody.wrong("dir", problem) }

// BackupBusyError refuses a backup while another one is made.
func BackupBusyError(err error) error {
	return api.NewProblem(http.StatusConflict, "busy", "busy", err.Error())
}

// BackupFailedError is a backup that could not be written, with a reason for the client.
func BackupFailedError(reason string) error {
	return api.NewProblem(http.StatusInternalServerError, "backup-failed", "no backup", "it could not be written: "+reason)
}

// backup answers when the copy is whole.
func (a *API) backup(c call) (any, error) {
	request := c.body.(*backupRequest)
	if !request.Dir.given {
		return nil, backupBody.missing("dir")
	}
	if request.Dir.value == "" {
		return nil, backupBody.wrong("dir", "is empty")
	}
	if a.services.Backup == nil {
		return nil, errNoBackups
	}
	// The server's own limit is for short answers. Writers without deadlines (tests)
	// return an error.
	_ = api.ExtendWrite(c.w, backupTimeout+10*time.Second)
	ctx, cancel := context.WithTimeout(c.ctx, backupTimeout)
	defer cancel()
	dir, err := a.services.Backup(ctx, request.Dir.value)
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, countmill.ErrUnavailable) {
		late := api.NewProblem(http.StatusServiceUnavailable, "timeout", "timeout", fmt.Sprintf("%s was not written within %s: there is no backup", dir, backupTimeout))
		err = late.RetryAfter(time.Minute)
	}
	return backupTaken{dir}, err
}
