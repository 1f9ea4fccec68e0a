// Package pebble is the store for one machine: an embedded Pebble database in a directory. One process
// at a time has it open.
//
// A fold is one batch of the write-ahead log, synced before Fold returns. Deltas are merge operands, so
// a fold reads only the markers of its own parts. Markers are grouped by the times of their parts into
// epochs of four days, and a whole epoch is dropped at once.
//
// If the disk refuses a table, commits are refused until it takes one, and reads go on. If it refuses any
// other write, the process exits with status 1. Pebble does not know which of its
// writes are on disk after that, but opening the directory again finds out. Nothing acknowledged is
// lost.
//
// A file beside Pebble's own has the number of commits. Pebble takes damage at the end of its files for
// a loss of power; with the number, a directory that has lost commits is refused.
//
// A view waits until every fold that it shows is synced, so a total that was shown stays.
package pebble

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Config says where the store is and how it runs.
type Config struct {
	// Dir is the directory. Open makes it if it is missing. Required.
	Dir string
	// Namespace separates the counters of several deployments in one directory. At most 100 bytes of
	// UTF-8. Default "".
	Namespace string
	// Window is how long a new database recognises a repeated part. An existing database uses its own
	// setting, which SetWindow changes. Default countmill.DefaultDedupWindow.
	Window time.Duration
	// Cache is the size of the block cache in bytes. Default 128 MiB.
	Cache int64
	// Logger gets lifecycle messages, disk errors, and the reason when the process ends. Default
	// discards.
	Logger *slog.Logger

	// FS replaces the file system in tests. Default the machine's.
	FS vfs.FS
	// Exit replaces os.Exit in tests. It is called once, with 1, and must not return. Default os.Exit.
	Exit func(code int)

	// memTable is small in tests, so that few folds cause a compaction.
	memTable uint64
	// pause is the wait after a first refused table. Default shortPause.
	pause time.Duration
	// clock is the machine's clock. age is how long the process has run; setting the clock does not
	// change it. Tests replace both.
	clock func() time.Time
	age   func() time.Duration
}

func (c Config) withDefaults() Config {
	c.Cache = cmp.Or(c.Cache, 128<<20)
	c.memTable = cmp.Or(c.memTable, 48<<20)
	c.pause = cmp.Or(c.pause, shortPause)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Exit == nil {
		c.Exit = os.Exit
	}
	if c.clock == nil {
		c.clock = func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("Dir is empty: name a directory"))
	}
	if len(c.Namespace) > maxNamespace || !utf8.ValidString(c.Namespace) {
		errs = append(errs, fmt.Errorf("Namespace must be at most %d bytes of UTF-8, got %q", maxNamespace, c.Namespace))
	}
	if c.Window < 0 {
		errs = append(errs, fmt.Errorf("Window must not be negative, got %s", c.Window))
	}
	if c.Cache < 0 {
		errs = append(errs, fmt.Errorf("Cache must not be negative, got %d", c.Cache))
	}
	return errors.Join(errs...)
}

// A Store is an open directory. All methods are safe for concurrent use.
type Store struct {
	*protocol.Store
	*directory
}

var (
	_ store.Store     = (*Store)(nil)
	_ backend.Disk    = (*Store)(nil)
	_ backend.Moments = (*Store)(nil)
)

// ID identifies the database. No other database has the same id, except copies and backups of it.
func (s *Store) ID() string { return s.id }
