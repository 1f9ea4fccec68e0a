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
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/store"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill"
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
	// looked is the most counters that Sums looks up one by one. It is negative in tests of the walk.
	looked int
	// clock is the machine's clock. age is how long the process has run; setting the clock does not
	// change it. Tests replace both.
	clock func() time.Time
	age   func() time.Duration
	form  Form
}

func (c Config) withDefaults() Config {
	c.Cache = cmp.Or(c.Cache, 128<<20)
	c.Window = cmp.Or(c.Window, countmill.DefaultDedupWindow)
	c.memTable = cmp.Or(c.memTable, 64<<20)
	c.pause = cmp.Or(c.pause, shortPause)
	c.looked = cmp.Or(c.looked, 20_000)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Exit == nil {
		c.Exit = os.Exit
	}
	if c.clock == nil {
		c.clock = func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
	}
	if c.form.merger == nil {
		c.form = Form{format, merger}
	}
	if c.age == nil {
		began := time.Now()
		c.age = func() time.Duration { return time.Since(began) }
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
	*directory
	keys    keyspace
	changes atomic.Uint64 // of sums

	viewsMu sync.Mutex
	views   map[*view]struct{} // open views with a snapshot

	// marking has room for one. Its holder may check and insert markers. It is a channel and not a
	// mutex, so that a waiting call notices the end of its context.
	marking chan struct{}
	epochs  []epoch       // epochs that contain markers, ascending; guarded by marking
	swept   time.Duration // the process's age at the last sweep

	// sweeping is held for reading by folds and growths, and for writing while counters are removed. So
	// a counter does not change between being examined and being removed.
	sweeping  sync.RWMutex
	condemned map[deletion]int // how often each was found; guarded by sweeping

	nexts nexts

	settings settings
	identity identity
	journal  journal
}

var (
	_ store.Store     = (*Store)(nil)
	_ backend.Disk    = (*Store)(nil)
	_ backend.Sweeper = (*Store)(nil)
	_ backend.Moments = (*Store)(nil)
)

// maxKeys is the most keys of one call. Pebble needs no such limit: it bounds the time of a call and
// the size of its answer.
const maxKeys = 1000

// Limits says that a commit may have any size, and that one commit at a time is best: one already uses
// the whole disk, and the increments that wait make the next one larger.
func (s *Store) Limits() store.Limits {
	return store.Limits{Entities: 0, Keys: maxKeys, Commits: 1, Shards: 1, GrowsInFold: true, CertainOutcome: true, RefusesOldRules: true, Remainders: maxRemainders}
}

// Keys is the most keys of one Lookup.
func (s *Store) Keys() int { return maxKeys }

// Close waits for running calls, closes the views that are still open, and releases the directory. A
// second call does nothing.
func (s *Store) Close() error {
	return s.CloseAfter(func() {
		for v := range s.views {
			v.closeLocked()
		}
		if err := s.keepSettings(); err != nil { // not fatal either
			s.cfg.Logger.Warn("settings were not written: the next process remembers ids for longer", "dir", s.cfg.Dir, "err", err)
		}
	})
}
