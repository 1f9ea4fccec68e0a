// Package pebble is the store of one machine: an embedded Pebble database in a
// directory, opened by one process at a time.
//
// A fold is one batch of the write-ahead log, synced before Fold returns. Counts are
// merge operands, so a fold reads nothing but the markers of its own parts. Markers are kept
// in epochs of four days by the time of their parts, and a whole epoch is dropped at once.
//
// A write that the disk refuses ends the process with status 1: Pebble cannot tell
// which of its writes are on disk after that, and opening the directory again can.
// Nothing that was acknowledged is lost.
//
// A file beside Pebble's says how many commits there were, so that a directory which has
// lost some is refused: Pebble takes damage at the end of its files for a loss of power.
//
// A view waits until all the folds that it sees are synced, so what it has shown stays.
package pebble

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/store"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill"
)

// Config says where a store lies.
type Config struct {
	// Dir is the directory; it is made where it is missing. Required.
	Dir string
	// Namespace keeps counters of several deployments apart in one directory: at most
	// 100 bytes of UTF-8. Default "".
	Namespace string
	// BackupRoot is the directory below which Backup may write. Default "": nowhere.
	BackupRoot string
	// Window is for how long a new database recognises parts. An existing database goes by its
	// own settings, which SetWindow changes. Default countmill.DefaultDedupWindow.
	Window time.Duration
	// Cache is the bytes of blocks kept in memory. Default 128 MiB.
	Cache int64
	// Logger is told of lifecycle, disk trouble and the end. Default discards.
	Logger *slog.Logger

	// FS replaces the file system in tests. Default the machine's.
	FS vfs.FS
	// Exit replaces os.Exit in tests. It is called once, with 1, and must not return.
	Exit func(code int)

	// memTable is small in tests, so that they need not fold gigabytes for a compaction.
	memTable uint64
	// clock is the machine's clock, and age is how long the process has run, which no clock
	// that is set can change. Tests give their own.
	clock func() time.Time
	age   func() time.Duration
}

func (c Config) withDefaults() Config {
	c.Cache = cmp.Or(c.Cache, 128<<20)
	c.Window = cmp.Or(c.Window, countmill.DefaultDedupWindow)
	c.memTable = cmp.Or(c.memTable, 64<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Exit == nil {
		c.Exit = os.Exit
	}
	if c.clock == nil {
		c.clock = func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
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

// A Store is an open directory. All methods may be called at once.
type Store struct {
	cfg    Config
	keys   keyspace
	db     *pebbledb.DB
	id     string // of this database, from its meta record
	fs     vfs.FS
	home   *home // nil with Config.FS
	health *health
	files  io.Closer // ends the watch over the disk

	// closing is held for reading by every call that uses db.
	closing sync.RWMutex
	closed  bool

	commits commits
	moments moments
	backing chan struct{} // has room for one backup
	syncs   syncs

	viewsMu sync.Mutex
	views   map[*view]struct{} // those with a snapshot

	// marking has room for one: who is in it may check and insert markers. A channel
	// and not a mutex, so that those who wait notice the end of their context.
	marking chan struct{}
	epochs  []epoch       // those that hold markers, ascending; guarded by marking
	swept   time.Duration // the process's age at the last sweep

	// sweeping is held for reading by folds and raises, and for writing while counters are
	// removed: what is read of them then is what is removed.
	sweeping  sync.RWMutex
	condemned map[string]int // how often a counter was found; guarded by sweeping

	settings settings
	identity identity
}

var (
	_ store.Store     = (*Store)(nil)
	_ backend.Disk    = (*Store)(nil)
	_ backend.Sweeper = (*Store)(nil)
)

// maxKeys is the most keys of one call. There is no such limit in Pebble; it bounds how
// long a call takes and how much it returns.
const maxKeys = 1000

// Limits says that a commit may be of any size. One commit at a time is best: it takes
// all the disk has to give, and waiting increments make the next one larger.
func (s *Store) Limits() store.Limits {
	return store.Limits{Entities: 0, Keys: maxKeys, Commits: 1, Shards: 1, GrowsInFold: true, CertainOutcome: true}
}

// Dir is Config.Dir.
func (s *Store) Dir() string { return s.cfg.Dir }

// Keys is the most keys of one Lookup.
func (s *Store) Keys() int { return maxKeys }

// ID tells this database from every other.
func (s *Store) ID() string { return s.id }

// enter begins a call that uses the database; the caller defers s.closing.RUnlock.
func (s *Store) enter() error {
	s.closing.RLock()
	if s.closed {
		s.closing.RUnlock()
		return fmt.Errorf("%w: the store in %s is closed", countmill.ErrUnavailable, s.cfg.Dir)
	}
	return nil
}

// Close waits for the calls under way, closes views that are still open, and gives the
// directory back. It may be called twice.
func (s *Store) Close() error {
	s.home.end()
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for v := range s.views {
		v.closeLocked()
	}
	if err := s.keepSettings(); err != nil { // nor by this
		s.cfg.Logger.Warn("data directory keeps older settings, so ids are remembered for longer", "dir", s.cfg.Dir, "err", err)
	}
	if err := s.seal(); err != nil { // nothing is lost by that
		s.cfg.Logger.Warn("data directory keeps an older seal, so less of what may go missing would be noticed", "dir", s.cfg.Dir, "err", err)
	}
	if err := errors.Join(s.db.Close(), s.files.Close()); err != nil {
		return fmt.Errorf("close %s: %w", s.cfg.Dir, err)
	}
	s.cfg.Logger.Info("store closed", "dir", s.cfg.Dir)
	return nil
}

// FileSystem returns how many bytes of the directory's file system are free, and its size.
func (s *Store) FileSystem() (free, size uint64, err error) {
	usage, err := s.fs.GetDiskUsage(s.cfg.Dir)
	return usage.AvailBytes, usage.TotalBytes, err
}

// DiskUsage is the bytes that the store takes on disk, 0 when it is closed.
func (s *Store) DiskUsage() uint64 {
	if s.enter() != nil {
		return 0
	}
	defer s.closing.RUnlock()
	return s.db.Metrics().DiskSpaceUsage()
}
