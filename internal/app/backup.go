package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/internal/api"
)

// backupTimeout bounds a backup: a disk that copies 100 MB a second takes 60 GB in it.
const backupTimeout = 10 * time.Minute

// A backupRequest names the directory of the copy, and so does its answer.
type backupRequest struct {
	Dir string `json:"dir"`
}

const wantDir = `{"dir": "monday"}, a directory below the server's --backup-root that is new or empty`

const wantRoot = "this process makes no backups: start it with --backup-root DIR or COUNTMILL_BACKUP_ROOT, below which they are made"

// backup answers POST /v1/backup when the copy is whole.
func (a *App) backup(w http.ResponseWriter, r *http.Request) {
	to, err := readBackup(w, r)
	if err == nil && a.backends.disk == nil {
		err = api.NewProblem(http.StatusNotImplemented, "not-supported", "not supported",
			"backup copies a pebble: store; this process has another, which its own tools back up")
	}
	if err == nil {
		// The server's own limit is for short answers. Writers without deadlines (tests)
		// return an error.
		_ = api.ExtendWrite(w, backupTimeout+10*time.Second)
		to, err = a.takeBackup(r.Context(), to)
	}
	if err != nil {
		api.WriteError(w, r, a.log, err)
		return
	}
	api.WriteJSON(w, http.StatusOK, backupRequest{to})
}

func readBackup(w http.ResponseWriter, r *http.Request) (string, error) {
	if _, err := api.Query(r, nil, nil); err != nil {
		return "", err
	}
	if _, err := api.ContentType(r, "application/json"); err != nil {
		return "", err
	}
	body, err := api.BodyReader{Max: 64 << 10, Timeout: 10 * time.Second}.Read(w, r, nil)
	if err != nil {
		return "", err
	}
	var request backupRequest
	if err := json.Unmarshal(body, &request, json.RejectUnknownMembers(true)); err != nil || request.Dir == "" {
		return "", &countmill.FieldError{Field: "body", Problem: "names no directory", Limit: wantDir}
	}
	return request.Dir, nil
}

func (a *App) takeBackup(ctx context.Context, to string) (dir string, err error) {
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	begin := time.Now()
	dir, err = a.backends.disk.Backup(ctx, to)
	switch {
	case errors.Is(err, pebble.ErrNoBackupRoot):
		return "", api.NewProblem(http.StatusNotImplemented, "not-supported", "not supported", wantRoot)
	case errors.Is(err, pebble.ErrBackupDir):
		return "", &countmill.FieldError{Field: "dir", Problem: err.Error(), Limit: wantDir}
	case errors.Is(err, pebble.ErrBackupBusy):
		return "", api.NewProblem(http.StatusConflict, "busy", "busy", err.Error())
	case errors.Is(err, countmill.ErrUnavailable):
		return "", err
	case errors.Is(err, context.DeadlineExceeded):
		late := api.NewProblem(http.StatusServiceUnavailable, "timeout", "timeout", fmt.Sprintf("%s was not written within %s: there is no backup", dir, backupTimeout))
		late.Header = http.Header{"Retry-After": {"60"}}
		return "", late
	case err != nil:
		a.log.LogAttrs(ctx, slog.LevelError, "no backup", slog.Any("err", err))
		return "", api.NewProblem(http.StatusInternalServerError, "backup-failed", "no backup", "it could not be written: "+reason(err))
	}
	a.log.LogAttrs(ctx, slog.LevelInfo, "backup taken", slog.String("dir", dir), slog.Duration("took", time.Since(begin)))
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
