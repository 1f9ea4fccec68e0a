package embedded

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/store"
)

// An Option changes how Open sets a DB up.
type Option func(*options)

type options struct {
	cfg  app.Config
	errs []error
}

func (o *options) wrong(format string, args ...any) {
	o.errs = append(o.errs, fmt.Errorf(format, args...))
}

// WithLogger gets a line when something has to be repeated, fails or recovers, and for the start and
// the end. Default: discards.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.cfg.Logger = log } }

// WithDedupWindow sets how long the directory remembers ids, and how old the time of an increment
// may be: from 1 hour to 366 days. The directory keeps it, also without the option. Default 8 days in a
// new directory.
func WithDedupWindow(d time.Duration) Option {
	return func(o *options) {
		if o.cfg.DedupWindow = d; d < store.MinWindow || d > store.MaxWindow {
			o.wrong("WithDedupWindow must be from %s to %s, got %s", store.MinWindow, store.MaxWindow, d)
		}
	}
}

// WithMinFree sets how many bytes of the file system stay free. Below it Handler refuses increments
// with 507; below half of it Publish and Flush wait for space. 0 for no limit. Default: the smaller
// of 1 GiB and 5 % of the file system, and no limit on a file system below 4 GiB.
func WithMinFree(bytes int) Option {
	return func(o *options) {
		switch o.cfg.MinFree = bytes; {
		case bytes == 0:
			o.cfg.MinFree = -1 // which is off in a Config
		case bytes < 0:
			o.wrong("WithMinFree must not be negative, got %d", bytes)
		}
	}
}

// WithCloseTimeout bounds Close. Default 25s.
func WithCloseTimeout(d time.Duration) Option {
	return func(o *options) {
		if o.cfg.ShutdownTimeout = d; d <= 0 {
			o.wrong("WithCloseTimeout must be above 0, got %s", d)
		}
	}
}

// WithTokens lets callers of Handler in by the bearer tokens in a file, a line each as `countmill
// token new` prints it. The DB reads the file again when it changes. Without WithTokens and
// WithInsecure, Handler answers requests of this machine only.
func WithTokens(file string) Option { return func(o *options) { o.cfg.Tokens = file } }

// WithInsecure lets everybody use Handler who reaches it: count, read and delete. It is for a handler
// that your own code guards.
func WithInsecure() Option { return func(o *options) { o.cfg.Insecure = true } }

// WithBackupRoot allows POST /v1/backup of Handler to take backups to this directory and to paths below it.
// Default: no backups.
func WithBackupRoot(dir string) Option { return func(o *options) { o.cfg.BackupRoot = dir } }
